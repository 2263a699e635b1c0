"""Five language models with rotary embeddings: how each lays them out, and at which sizes."""

from collections.abc import Callable
from functools import partial

from benchmarks.corpus.case import Builder, Case, Peer
from benchmarks.corpus.pytorch import Tensor

# (x, cos, sin) -> x turned by the angles, forward or back
Rotate = Callable[[Tensor, Tensor, Tensor], Tensor]

GROUPED = (
    {"batch": 1, "tokens": 1, "heads": 2, "groups": 1, "size": 2},
    {"batch": 2, "tokens": 7, "heads": 6, "groups": 2, "size": 10},
    {"batch": 1, "tokens": 33, "heads": 4, "groups": 4, "size": 16},
)
ONE_BATCH = tuple({name: n for name, n in sizes.items() if name != "batch"} for sizes in GROUPED)
UNGROUPED = tuple({name: n for name, n in sizes.items() if name not in ("batch", "groups")} for sizes in GROUPED)

# Name, layout, sizes of the benchmark, sizes of the tests
MODELS = (
    ("llama_2_7b", "llama", {"batch": 2, "tokens": 1024, "heads": 32, "groups": 32, "size": 128}, GROUPED),
    ("llama_3_8b", "llama", {"batch": 2, "tokens": 1024, "heads": 32, "groups": 8, "size": 128}, GROUPED),
    ("qwen_2", "qwen2", {"batch": 1, "tokens": 4096, "heads": 28, "groups": 4, "size": 128}, GROUPED),
    ("phi_3", "phi3", {"tokens": 2048, "heads": 32, "size": 96}, UNGROUPED),
    ("mistral_nemo", "mistral", {"tokens": 4096, "heads": 32, "groups": 8, "size": 128}, ONE_BATCH),
)


def rope_cases(name: str, eager: Rotate, rounded_once: Rotate, **layouts: tuple[Builder, Peer]) -> tuple[Case, ...]:
    """A case per model, `name` with the model's in its braces. eager, rounded_once: what a layout's peer turns by, in
    both spellings that are timed. layouts: the graph and its peer, which takes the turn first."""
    return tuple(
        Case(
            name=name.format(model),
            kind="memory",
            build=layouts[layout][0],
            torch=partial(layouts[layout][1], eager),
            also=(partial(layouts[layout][1], rounded_once),),
            sizes=sizes,
            small=small,
            bench_dtypes=("bf16", "f16"),
        )
        for model, layout, sizes, small in MODELS
    )
