"""Symbolic sizes and numbers of graphs that are traced for any: the numbers that they were traced with."""

from typing import Any

import torch

from fuseplan_client.torch.wire import Refused

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def hint(value: Any) -> Any:
    """The number that a symbol stood for when it was traced; a number itself. Raises Refused where data decide."""
    if not isinstance(value, SYMBOLS):
        return value
    found = value.node.hint
    if found is None:
        raise Refused("a size that depends on data")
    return found


def is_symbolic(value: Any) -> bool:
    """Whether a value is a symbol, or a tensor of symbolic size or layout."""
    if isinstance(value, torch.Tensor):
        return any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride(), value.storage_offset()))
    return isinstance(value, SYMBOLS)
