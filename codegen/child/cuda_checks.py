"""Memory of a CUDA device on which candidates are checked: the inputs, once, and copies of all that right candidates
left. A run that leaves exactly the bytes of such a copy is right too, and nothing of it is copied to the host, which
takes much longer than the run."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from codegen.child.case import Array, Case, Verdict
from codegen.child.cpu_memory import POISON, layouts
from codegen.child.cuda_kernels import BLOCK, grid, kernels
from codegen.child.cuda_memory import DeviceTensors, cupy
from fusion_ir.accuracy.tolerance import ORDERS, Order

MOST_KEPT = 3  # different results that were right: sums in other orders
FREE_SHARE = 8  # each takes no more than this part of the memory that is free


class CheckTensors:
    """One set of inputs, and outputs, on the current device. aliases: a candidate's outputs that are other entries of
    the table, as {output: entry}."""

    def __init__(self, case: Case, input_set: int) -> None:
        self.case, self.input_set = case, input_set
        inputs, outputs = layouts(case.graph)
        self._inputs = len(inputs)
        self._tensors = DeviceTensors([*inputs, *outputs])
        for i, array in enumerate(case.input_sets[input_set].inputs):
            self._tensors.write(i, array)
        number = int(cupy().cuda.Device().id)
        self._differ, self._grid = kernels(number).get_function("differ"), grid(number)
        self._flag = cupy().empty(1, np.int32)
        self._fresh = self._copy(self._tensors.offsets[self._inputs])  # inputs, and what is around them
        self._right: list[tuple[Any, Verdict, Order]] = []

    @property
    def addresses(self) -> list[int]:
        """Addresses of inputs and outputs."""
        return self._tensors.addresses

    def reset(self, poison: int) -> None:
        """Restores all memory to its state before any run, the outputs filled with the byte `poison`."""
        self._tensors.memory.data.copy_from_device(self._fresh.data, self._fresh.nbytes)
        self._tensors.guard(self._inputs)
        for i in range(self._inputs, len(self._tensors.sizes)):
            self._tensors.fill(i, poison)

    def known(self, order: Order = "own") -> Verdict | None:
        """The verdict on an earlier right run that left exactly these bytes and was judged by `order` or a stricter
        one; None where there was none."""
        enough = ORDERS[: ORDERS.index(order) + 1]
        found = ((left, verdict) for left, verdict, its in self._right if its in enough)
        return next((verdict for left, verdict in found if self._is_as(left)), None)

    def outputs(self, aliases: Mapping[int, int]) -> list[Array]:
        """The outputs, copied to the host."""
        return [
            self._tensors.read(aliases.get(i, self._inputs + i)) for i in range(len(self._tensors.sizes) - self._inputs)
        ]

    def trespass(self) -> str:
        """A message that says where a run wrote besides the outputs, "" for nowhere."""
        if not self._is_as(self._fresh):
            return "wrote into its inputs or around them"
        return self._tensors.trespass()

    def copy(self) -> Any:
        """A copy of all memory as it is now, for `keep`; None where there is no room for it."""
        free, bytes_ = int(cupy().cuda.Device().mem_info[0]), int(self._tensors.memory.nbytes)
        return self._copy(bytes_) if len(self._right) < MOST_KEPT and bytes_ * FREE_SHARE <= free else None

    def keep(self, copied: Any, verdict: Verdict, order: Order = "own") -> None:
        """Notes that a run that left the bytes `copied` was right, judged by `order`."""
        self._right.append((copied, verdict, order))

    def _copy(self, bytes_: int) -> Any:
        copied = cupy().empty(bytes_, np.uint8)
        copied.data.copy_from_device(self._tensors.memory.data, bytes_)
        return copied

    def _is_as(self, copied: Any) -> bool:
        """Whether the first bytes are those of a copy. All offsets are multiples of 256 bytes."""
        self._flag.data.memset(0, self._flag.nbytes)
        args = (self._tensors.memory, copied, np.int64(copied.nbytes // 16), self._flag)
        self._differ(self._grid, (BLOCK,), args)
        return not cupy().asnumpy(self._flag)[0]


class CudaCase:
    """A case with the memory that its candidates share."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._checks: tuple[tuple[CheckTensors, int], ...] = ()

    @property
    def checks(self) -> tuple[tuple[CheckTensors, int], ...]:
        """(memory, poison byte) of the two runs that check a candidate, on the first input set and on the last. Made at
        the first call, on the current device."""
        if not self._checks:
            tensors = [CheckTensors(self.case, input_set) for input_set in range(len(self.case.input_sets))]
            self._checks = ((tensors[0], POISON[0]), (tensors[-1], POISON[1]))
        return self._checks
