"""Tensors by their names: those that the sender of a graph gave."""

import pytest

from fusion_ir.records import Ref
from service.wording.naming import MOST_CHARACTERS, Naming

NAMED = Naming(("q", "k", "v"), ("outb",))


def refs(*texts: str) -> list[Ref]:
    return [Ref(place=t.rstrip("0123456789"), index=int(t.lstrip("intmpou"))) for t in texts]


@pytest.mark.parametrize(
    ("naming", "given", "text"),
    [
        (NAMED, ("in2", "in0", "tmp0", "tmp1", "out0"), "q v tmp0…1 outb"),
        (NAMED, ("tmp3",), "tmp3"),
        (NAMED, ("in0", "in3", "in4"), "q in3…4"),
        (Naming(), ("in2", "in0", "in1", "tmp0"), "in0…2 tmp0"),
        (Naming(("in0", "in1")), ("in0", "in1"), "in0…1"),
        (Naming(("", "y")), ("in0", "in1", "in2"), "in0 y in2"),
        (NAMED, (), ""),
    ],
)
def test_lists(naming: Naming, given: tuple[str, ...], text: str) -> None:
    assert naming.list_of(refs(*given)) == text


def test_long_names_and_long_lists_are_cut() -> None:
    naming = Naming(tuple(f"layers.0.attention.projection.weight{i:02}" for i in range(20)))
    (first,) = refs("in0")
    assert naming.of(first) == "layers.0.attenti…eight00"
    assert len(naming.of(first)) <= MOST_CHARACTERS
    assert naming.list_of(refs(*(f"in{i}" for i in range(20)))).endswith("eight05 and 14 more")
