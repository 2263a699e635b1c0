"""What a step computes of something that a rewrite cut in two, and which tensors of the graph it writes."""

from typing import Literal

from pydantic import Field

from fusion_ir.records.base import Record


class Half(Record):
    """Of a reduction or a contraction whose sums were cut: `parts` of `terms` terms each, and of `rest` more where they
    do not come out even. node: its position in the graph's canonical text.

    half: "first" reduces each of the parts, "second" what these gave; "both": some of either, and not all of it.
    """

    node: int
    half: Literal["first", "second", "both"]
    parts: int
    terms: int
    rest: int = Field(default=0, exclude_if=lambda rest: not rest)


class Written(Record):
    """What a temporary holds that a step writes. nodes: positions in the graph's canonical text of the tensors that it
    is, or, where it is not `whole`, of those that it was made for: partial sums of one, a product in another order."""

    nodes: tuple[int, ...]
    whole: bool = Field(default=True, exclude_if=lambda whole: whole)
