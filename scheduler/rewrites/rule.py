"""What a rewrite is: one declaration with its mathematics."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fusion_ir.node import Node


@dataclass(frozen=True)
class Rule:
    """`apply` gives an equal node (same shape, dtype and, for `exact`, bits but for NaN payloads), None where it does
    not match."""

    name: str
    equation: str
    numerics: Literal["exact", "reassociate", "approximate"]
    apply: Callable[[Node], Node | None]
