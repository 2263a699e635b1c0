"""What a rewrite is: one declaration with its mathematics."""

from collections.abc import Callable
from dataclasses import dataclass

from fusion_ir.node import Node
from fusion_ir.records import NUMERICS, Numerics


@dataclass(frozen=True)
class Rule:
    """`apply` gives an equal node (same shape, dtype and, for `exact`, bits but for NaN payloads), None where it does
    not match."""

    name: str
    equation: str
    numerics: Numerics
    apply: Callable[[Node], Node | None]

    @property
    def looseness(self) -> int:
        """Place of its class among `NUMERICS`."""
        return NUMERICS.index(self.numerics)
