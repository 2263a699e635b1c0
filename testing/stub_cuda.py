"""A stand-in for CUDA's driver (stub_cuda.cpp), whose kernels the emulator runs, and a device of PyTorch's that poses
as one of CUDA's on the CPU's tensors."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from fuseplan_client.cuda import driver, program
from fuseplan_client.torch.devices import EMPTY_ON_CPU, CudaDevice

from codegen.launch.emulator import emulator_library, load_runtime
from codegen.sandbox.object_cache import ObjectCache
from codegen.toolchain.compiler import INCLUDE, Failure
from codegen.toolchain.cpu import find_compiler

SOURCE = Path(__file__).with_name("stub_cuda.cpp")
FLAGS = ["-std=c++17", "-O2", "-fPIC", "-shared", "-w", f"-I{INCLUDE}"]
STREAM = 7


class Posing(CudaDevice):
    """The CPU, posing as the first CUDA device. captures: what `is_capturing` says; nothing may be waited for then, nor
    marked. marks: points of time that were asked for. waits: those that streams waited for."""

    def __init__(self) -> None:
        super().__init__(0)
        self.name = "cpu"
        self.captures, self.marks, self.waits = False, 0, 0

    def target(self) -> str:
        return "cuda:0"

    def clock(self) -> float:
        assert not self.captures, "waited for a stream that is captured"
        return time.perf_counter()

    def mark(self) -> Any:
        assert not self.captures, "an event of ours in a stream that is captured"
        self.marks += 1
        return time.perf_counter()

    def between_us(self, start: Any, end: Any) -> float:
        assert not self.captures, "waited for an event while a stream is captured"
        return 1e6 * (end - start)

    def is_capturing(self) -> bool:
        return self.captures

    def wait_for(self, mark: Any, memory: Any) -> None:
        assert not self.captures, "a captured stream waits for what is not captured"
        assert memory.numel()
        self.waits += 1

    def on_device(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def current_stream(self) -> int:
        return STREAM

    def empty(self) -> Callable[..., Any]:
        return EMPTY_ON_CPU


def stub_driver(cache: ObjectCache) -> ctypes.CDLL:
    """The driver, loaded with the emulator that it runs kernels in."""
    compiler = find_compiler(cache=cache)
    load_runtime(emulator_library(compiler, cache))

    def made() -> bytes:
        with compiler.slot() as slot:
            built = compiler.build(slot, SOURCE.read_text(), FLAGS, 120.0)
        assert not isinstance(built, Failure), built.detail
        return built[0]

    return ctypes.CDLL(str(cache.made(f"stub of CUDA's driver {SOURCE.stat().st_mtime_ns}", made)))


@contextmanager
def instead_of_cuda(stub: ctypes.CDLL) -> Iterator[None]:
    """Within it, the client takes the stub for the driver."""

    def forget() -> None:
        driver.driver.cache_clear()
        driver.primary_context.cache_clear()
        program._modules.clear()

    with mock.patch.object(driver, "LIBRARY", stub._name):
        forget()
        yield
    forget()
