"""Halves of a sum that a rewrite cut in two, which a step computes, and the tensors of the graph that a step writes."""

from typing import Literal

from pydantic import Field

from fusion_ir.records.base import Record


class Half(Record):
    """Half of a reduction or contraction whose sums a rewrite cut into `parts` of `terms` terms each, and one of `rest`
    terms where they do not divide evenly. node: its position in the graph's canonical text.

    half: "first" reduces each of the parts, "second" reduces their results; "both": some of either, and not all of it.
    """

    node: int
    half: Literal["first", "second", "both"]
    parts: int
    terms: int
    rest: int = Field(default=0, exclude_if=lambda rest: not rest)


class Written(Record):
    """The contents of a temporary that a step writes. nodes: positions in the graph's canonical text of the tensors
    that it is, or, where it is not `whole`, of those that it was made for: partial sums of one, a product in another
    order."""

    nodes: tuple[int, ...]
    whole: bool = Field(default=True, exclude_if=lambda whole: whole)
