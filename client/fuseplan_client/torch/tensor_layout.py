"""Layouts of tensors, without their memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Node


@dataclass(frozen=True)
class Layout:
    """A tensor without its memory: strides and offset in elements."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: torch.device

    def faked(self, mode: FakeTensorMode) -> torch.Tensor:
        """A fake tensor that lies so."""
        like: Mapping[str, Any] = {"dtype": self.dtype, "device": self.device}
        with mode:
            if not self.offset:
                return torch.empty_strided(self.sizes, self.strides, **like)
            steps = ((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))
            span = 1 + sum(steps) if 0 not in self.sizes else 0
            return torch.empty(self.offset + span, **like).as_strided(self.sizes, self.strides, self.offset)


@dataclass(frozen=True)
class Seen:
    """values: what each node gave, with layouts in the place of tensors. copies: nodes that give views by their
    schemas, and gave memory of their own: `reshape` in the place of a `view` that there was none of."""

    values: Mapping[Node, Any]
    copies: frozenset[Node]


def layout_of(value: torch.Tensor) -> Layout:
    """The layout of a tensor of whole sizes."""
    offset = int(value.storage_offset())
    return Layout(value.dtype, tuple(value.shape), tuple(value.stride()), offset, value.device)
