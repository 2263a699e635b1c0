"""Limits of a device that set lower bounds, in words: `Plan.bound_by` for a person."""

# By `Plan.bound_by`; products of a dtype are not in the table.
WORDS = {
    "launch": "a launch",
    "memory": "its bytes, from main memory",
    "cache": "its bytes, from the cache",
    "arithmetic": "its arithmetic",
}


def limit_words(bound_by: str | None) -> str:
    """ "its bytes, from main memory"; "its products of bf16"; "" where a plan does not say."""
    if bound_by is None:
        return ""
    dtype, products, _ = bound_by.partition(" products")
    return f"its products of {dtype}" if products else WORDS[bound_by]
