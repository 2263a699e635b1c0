"""Sizes that many cases share: the benchmark's move 48 to 160 MB, the tests' are small and often odd."""

from benchmarks.corpus.case import Sizes

# 16.8 million elements: read once and written once they are 134 MB in f32 and 67 MB in 16 bits.
SQUARE: Sizes = {"rows": 4096, "columns": 4096}
LONG: Sizes = {"rows": 8192, "columns": 2048}
# Three tensors, and four.
THREE: Sizes = {"rows": 4096, "columns": 2560}
FOUR: Sizes = {"rows": 4096, "columns": 2048}

MATRICES: tuple[Sizes, ...] = (
    {"rows": 1, "columns": 1},
    {"rows": 3, "columns": 17},
    {"rows": 33, "columns": 129},
    {"rows": 7, "columns": 64},
)

IMAGES: tuple[Sizes, ...] = (
    {"batch": 1, "channels": 4, "groups": 2, "height": 1, "width": 3},
    {"batch": 3, "channels": 6, "groups": 3, "height": 7, "width": 17},
    {"batch": 2, "channels": 33, "groups": 11, "height": 8, "width": 16},
)


def plain(images: tuple[Sizes, ...]) -> tuple[Sizes, ...]:
    """The sizes of `images` without groups, for cases that have none."""
    return tuple({name: n for name, n in sizes.items() if name != "groups"} for sizes in images)
