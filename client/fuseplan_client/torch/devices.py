"""The devices that groups are computed on: how plans for them are asked for, called and timed."""

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch._C._dynamo import guards
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from fuseplan_client.cpu.executor import STACK_BYTES, Executor, StackError
from fuseplan_client.cpu.machine import MKL, has_mkl
from fuseplan_client.cpu.program import CpuProgram, way_of
from fuseplan_client.cuda.program import CudaProgram, raise_for
from fuseplan_client.plan import Plan
from fuseplan_client.torch.export import Exported
from fuseplan_client.torch.plan_call import Call, CallWriter, HalfDone, Names
from fuseplan_client.torch.updates import Update

# Half a microsecond faster than `torch.empty_strided`; what Inductor calls. PyTorch without CUDA may lack the last two.
EMPTY_ON_CPU: Callable[..., torch.Tensor] = getattr(guards, "_empty_strided_cpu")  # noqa: B009  has no types
EMPTY_ON_CUDA: Callable[..., torch.Tensor] | None = getattr(guards, "_empty_strided_cuda", None)
STREAM_OF: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)


@dataclass(frozen=True)
class Given:
    """A plan as a server gives it. names: of its inputs and outputs."""

    plan: Plan
    binaries: Mapping[str, bytes]
    executor: Executor
    names: Names


class GroupDevice(Protocol):
    """A device of PyTorch's. name: as PyTorch has it, "cpu" or "cuda:1"."""

    name: str

    def target(self) -> str:
        """The device by a service's words, as the calling thread uses it."""
        ...

    def targets(self, target: str) -> Sequence[str]:
        """The targets to ask for, the best first: the next ones for servers without such a device."""
        ...

    def call(self, exported: Exported, examples: Sequence[Any], given: Given, updates: Sequence[Update]) -> Call:
        """The plan as a function in the place of a group: see `CallWriter`. Raises UnfitPlan, and what a program does
        where it cannot be loaded."""
        ...

    def clock(self) -> float:
        """Seconds, once all that was queued by now has run."""
        ...

    def mark(self) -> Any:
        """A point of time, or of what is queued, for `between_us`. It waits for nothing."""
        ...

    def between_us(self, start: Any, end: Any) -> float:
        """Microseconds between two marks, once the work up to the later one is done."""
        ...

    def is_capturing(self) -> bool:
        """Whether calls are captured into a graph of the device's: nothing may be waited for."""
        ...


class CpuDevice:
    """The CPU, on as many threads as PyTorch uses."""

    name = "cpu"

    def target(self) -> str:
        return f"cpu:{torch.get_num_threads()}"  # another thread has a number of its own

    def targets(self, target: str) -> Sequence[str]:
        return (f"{target}:{MKL}", target) if has_mkl() else (target,)

    def call(self, exported: Exported, examples: Sequence[Any], given: Given, updates: Sequence[Update]) -> Call:
        program = CpuProgram(given.plan, given.binaries, given.executor)
        return _CpuWriter(exported, examples, program, given.names, updates).function()

    def clock(self) -> float:
        return time.perf_counter()

    def mark(self) -> Any:
        return time.perf_counter()

    def between_us(self, start: Any, end: Any) -> float:
        return 1e6 * (end - start)

    def is_capturing(self) -> bool:
        return False


class CudaDevice:
    """A GPU: plans run on PyTorch's current stream, their memory is of PyTorch's allocator. Calls are timed by events
    on that stream: what a program pays is the device's time where it queues ahead of it, and else its own."""

    def __init__(self, number: int) -> None:
        self.number, self.name = number, f"cuda:{number}"

    def target(self) -> str:
        return self.name

    def targets(self, target: str) -> Sequence[str]:
        return (target,)

    def call(self, exported: Exported, examples: Sequence[Any], given: Given, updates: Sequence[Update]) -> Call:
        program = CudaProgram(given.plan, given.binaries, given.executor, self)
        return _CudaWriter(exported, examples, program, given.names, updates, self).function()

    def clock(self) -> float:
        torch.cuda.current_stream(self.number).synchronize()
        return time.perf_counter()

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.number))
        return event

    def between_us(self, start: Any, end: Any) -> float:
        end.synchronize()
        return 1e3 * start.elapsed_time(end)

    def is_capturing(self) -> bool:
        if torch.cuda.current_device() == self.number:
            return torch.cuda.is_current_stream_capturing()
        with self.on_device():
            return torch.cuda.is_current_stream_capturing()

    def allocate(self, size: int) -> Any:
        """Memory of PyTorch's allocator."""
        return torch.empty(size, dtype=torch.uint8, device=self.name)

    def wait_for(self, mark: Any, memory: Any) -> None:
        """Has the current stream wait for a mark, and memory stay until what it will have queued by then is done."""
        stream = torch.cuda.current_stream(self.number)
        stream.wait_event(mark)
        memory.record_stream(stream)

    def on_device(self) -> AbstractContextManager[Any]:
        """Makes it PyTorch's current device."""
        return torch.cuda.device(self.number)

    def current_stream(self) -> int:
        """The address of this thread's current stream."""
        return STREAM_OF(self.number) if STREAM_OF else int(torch.cuda.current_stream(self.number).cuda_stream)

    def empty(self) -> Callable[..., torch.Tensor]:
        """A function from sizes, strides and dtype to a tensor on it."""
        if EMPTY_ON_CUDA is not None and torch.cuda.device_count() == 1:
            return EMPTY_ON_CUDA  # on the current device

        def empty(sizes: Any, strides: Any, dtype: torch.dtype) -> torch.Tensor:
            return torch.empty_strided(sizes, strides, dtype=dtype, device=self.name)

        return empty


CPU = CpuDevice()


def device_of(module: GraphModule) -> GroupDevice | str:
    """The device that a graph's tensors are on: the one beside the CPU where there is one, for what CPU tensors do in
    such graphs is set numbers. In words, where plans cannot be for it."""
    values = [v for n in module.graph.nodes for v in tree_leaves((n.meta.get("val"),)) if isinstance(v, torch.Tensor)]
    found = dict.fromkeys(v.device for v in values if v.device.type != "cpu")
    if not found:
        return CPU
    if len(found) > 1 or any(d.type != "cuda" for d in found):
        return " and ".join(map(str, found))
    (device,) = found
    return CudaDevice(device.index or 0)


class _CpuWriter(CallWriter):
    program: CpuProgram

    def number(self, i: int, position: int) -> list[str]:
        self.known |= {"double": ctypes.c_double, "addressof": ctypes.addressof}
        return [f"n{i} = double(args[{position}])", f"at[{i}] = addressof(n{i})"]

    def empty(self, sizes: str, strides: str, dtype: str) -> str:
        self.known["empty_strided"] = EMPTY_ON_CPU
        return f"empty_strided({sizes}, {strides}, {dtype})"

    def run(self, constants: str, held: str) -> list[str]:
        steps = self.program.steps
        self.known |= {
            "get_num_threads": torch.get_num_threads, "way": way_of(self.program.executor), "run": steps.entry,
            "handle": steps.handle, "first": self.program.once, "end": steps.steps, "StackError": StackError,
        }  # fmt: skip
        prologue = [f"prepare(table, threads, way, {constants}, {held})"] if self.program.once else []
        return [
            "threads = get_num_threads()",
            *prologue,
            f"if run(handle, first, end, at, threads, way, {STACK_BYTES}):",
            "    raise StackError",
        ]


class _CudaWriter(CallWriter):
    program: CudaProgram

    def __init__(
        self,
        exported: Exported,
        examples: Sequence[Any],
        program: CudaProgram,
        names: Names,
        updates: Sequence[Update],
        device: CudaDevice,
    ) -> None:
        super().__init__(exported, examples, program, names, updates)
        self.known |= {"empty_strided": device.empty(), "current_stream": device.current_stream}

    def number(self, i: int, position: int) -> list[str]:
        """A tensor of the number: it is filled by a kernel, in the order of the stream."""
        self.known["f64"] = torch.float64
        return [f"n{i} = empty_strided((), (), f64).fill_(args[{position}])", f"at[{i}] = n{i}.data_ptr()"]

    def empty(self, sizes: str, strides: str, dtype: str) -> str:
        return f"empty_strided({sizes}, {strides}, {dtype})"

    def run(self, constants: str, held: str) -> list[str]:
        program = self.program
        lines = ["stream = current_stream()"]
        if program.workspace_bytes:
            self.known |= {"wsize": (program.workspace_bytes,), "wstride": (1,), "u8": torch.uint8}
            lines += ["w = empty_strided(wsize, wstride, u8)", f"at[{program.workspace}] = w.data_ptr()"]
        if program.once:
            lines.append(f"prepare(table, stream, {constants}, {held})")
        if program.single is None:
            self.known["run"], call = program.run, "run(table, stream)"
        else:
            first, end = program.single
            self.known |= {"run": program.entry, "handle": program.handle, "raise_for": raise_for}
            call = f"raise_for(run(handle, {first}, {end}, at, stream))"
        written = [r.index for s in program.plan.steps[:-1] for r in s.args[s.reads :] if r.place == "out"]
        if not any(self.places.outputs[k] in self.placed for k in written):
            return [*lines, call]  # the last step updates inputs, or does nothing
        self.known["HalfDone"] = HalfDone
        failed = "raise HalfDone(f'a plan failed in the middle of updates in place: {error}') from error"
        return [*lines, "try:", f"    {call}", "except Exception as error:", f"    {failed}"]
