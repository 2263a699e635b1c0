"""PyTorch's own samples as a peer: each graph of each entry is right, or refused with a reason."""

import random

import pytest

from tests.support.whole import WHOLE, in_turn, seed

pytest.importorskip("expecttest", reason="PyTorch's samples need it")


@pytest.mark.soak
@pytest.mark.parametrize("part", in_turn(range(28), 1, "opinfo"))
def test_samples_of_pytorchs_ops_are_right_or_refused(part: int) -> None:
    """The entries of a part in one dtype, every other time f32; in the long run in each of them. Prints what is
    said."""
    from tests.support import opinfo

    assert opinfo.PARTS == 28
    drawn = random.Random(f"{seed()} {part}")
    names = opinfo.names(part)
    others = [d for d in opinfo.DTYPES if d != "f32"]
    dtypes = list(opinfo.DTYPES) if WHOLE else [drawn.choice(["f32", drawn.choice(others)])]
    wrong: list[str] = []
    for dtype in dtypes:
        coverage = opinfo.Coverage.empty()
        for name in names:
            if opinfo.supports(name, opinfo.DTYPES[dtype]):
                results = opinfo.found(name, opinfo.DTYPES[dtype], 12 if WHOLE else 2 if dtype == "f32" else 1)
                coverage.add(name, results)
                wrong += [f"{dtype} {line}" for line in opinfo.faults(name, results)]
        print(f"part {part}, seed {seed()}", opinfo.HEAD, coverage.row(dtype), sep="\n")
        assert coverage.both["said"] > sum(coverage.both.values()) // 4  # of those that have the dtype
    assert not wrong, "\n".join(wrong)
