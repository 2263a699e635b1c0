"""Memory of the tensors of one graph on a CUDA device, with regions around each tensor that nobody may write."""

import importlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from codegen.child.case import Array
from codegen.child.cpu_memory import TensorLayout

GUARD_BYTES = 1 << 16
CANARY = 0xC5
ALIGNMENT = 256


@lru_cache(maxsize=1)
def cupy() -> Any:
    """The package CuPy. Raises ImportError."""
    return importlib.import_module("cupy")


class DeviceTensors:
    """Tensors one behind the other in one allocation, with guard regions of a known pattern between them. Made of plain
    copies and fills alone: each operation on CuPy's arrays would be compiled first, in every child anew."""

    def __init__(self, table: Sequence[TensorLayout], extra: Sequence[int] = ()) -> None:
        self.table = list(table)
        sizes = [t.bytes for t in table] + list(extra)
        self.offsets: list[int] = []
        end = GUARD_BYTES
        for size in sizes:
            self.offsets.append(end)
            end += -(-size // ALIGNMENT) * ALIGNMENT + GUARD_BYTES
        self.sizes = sizes
        self.memory = cupy().empty(end, np.uint8)
        self.guard(0)

    @property
    def addresses(self) -> list[int]:
        return [int(self.memory.data.ptr) + offset for offset in self.offsets]

    def write(self, i: int, array: Array) -> None:
        """Copies a tensor to the device, with its strides."""
        layout = self.table[i]
        raw = np.zeros(layout.bytes, np.uint8)
        if layout.span:
            layout.view(raw)[...] = array
        self._slice(i).set(raw)

    def read(self, i: int) -> Array:
        """Copies a tensor to the host; a view with its strides."""
        return self.table[i].view(np.ascontiguousarray(cupy().asnumpy(self._slice(i))))

    def fill(self, i: int, byte: int) -> None:
        """Overwrites a tensor or temporary."""
        self._set(self.offsets[i], self.sizes[i], byte)

    def guard(self, i: int) -> None:
        """Overwrites tensors from the i-th on, and all guard regions behind them, with the guards' pattern."""
        start = self.offsets[i] if i < len(self.offsets) else int(self.memory.size) - GUARD_BYTES
        start = start if i else 0
        self._set(start, int(self.memory.size) - start, CANARY)

    def trespass(self) -> str:
        """Where a guard region was written, "" if nowhere."""
        start = 0
        for i, (offset, size) in enumerate(zip(self.offsets, self.sizes, strict=True)):
            if not self._is_intact(start, offset):
                return f"wrote before tensor {i}"
            start = offset + size
        return "" if self._is_intact(start, self.memory.size) else f"wrote behind tensor {len(self.sizes) - 1}"

    def _is_intact(self, start: int, end: int) -> bool:
        return bool((cupy().asnumpy(self.memory[start:end]) == CANARY).all())

    def _set(self, start: int, size: int, byte: int) -> None:
        if size:
            (self.memory.data + start).memset(byte, size)

    def _slice(self, i: int) -> Any:
        return self.memory[self.offsets[i] : self.offsets[i] + self.sizes[i]]
