"""Tensor maps: how a kernel for sm_90 and later copies boxes of a tensor to shared memory (TMA)."""

from math import prod
from typing import Literal, Self

from pydantic import Field, model_validator

from fusion_ir.records.base import Record

MOST_AXES = 5
MOST_BOX = 256  # elements along an axis of a box
STRIDE_BYTES = 16  # strides and the first address are multiples of it
Swizzle = Literal[0, 32, 64, 128]


class TensorMapSpec(Record):
    """One tensor map, which the runner encodes once it knows where the tensor is, and hands to the kernel behind its
    tensors.

    argument: which of the kernel's tensors, inputs and outputs counted together. offset_bytes: of the first element
    from the tensor's address. sizes, strides_bytes, box: innermost axis first; elements of the innermost one are
    contiguous, its stride is left out. What a box holds beyond the sizes reads as zero; it may begin at
    any multiple of 16 bytes along the innermost axis. swizzle: bytes over which rows of a box are swizzled in shared
    memory, 0 for none.

    Raises ValueError for what the hardware cannot do (CUDA driver API, cuTensorMapEncodeTiled).
    """

    argument: int = Field(ge=0)
    offset_bytes: int = Field(default=0, ge=0)
    dtype: str
    element_bytes: int
    sizes: tuple[int, ...] = Field(min_length=1, max_length=MOST_AXES)
    strides_bytes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: Swizzle = 128

    @model_validator(mode="after")
    def _can_be_encoded(self) -> Self:
        problem = self._problem()
        if problem:
            raise ValueError(problem)
        return self

    def _problem(self) -> str:
        if len(self.strides_bytes) != len(self.sizes) - 1 or len(self.box) != len(self.sizes):
            return f"{len(self.sizes)} axes with {len(self.strides_bytes)} strides and a box of {len(self.box)}"
        if any(not 1 <= n < 1 << 32 for n in self.sizes):
            return f"sizes {self.sizes} are not all between 1 and 2^32 - 1"
        if any(s % STRIDE_BYTES or not 0 <= s < 1 << 40 for s in self.strides_bytes):
            return f"strides of {self.strides_bytes} bytes are not all multiples of {STRIDE_BYTES} below 2^40"
        if self.offset_bytes % STRIDE_BYTES:
            return f"starts {self.offset_bytes} bytes into the tensor, no multiple of {STRIDE_BYTES}"
        if any(not 1 <= n <= MOST_BOX for n in self.box):
            return f"box {self.box} is not between 1 and {MOST_BOX} along every axis"
        row = self.box[0] * self.element_bytes
        if row % STRIDE_BYTES or (self.swizzle and row > self.swizzle):
            return f"rows of a box have {row} bytes, expected multiples of {STRIDE_BYTES} up to the swizzle"
        return ""

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy brings to shared memory."""
        return prod(self.box) * self.element_bytes
