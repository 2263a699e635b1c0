"""A stand-in for what the plan runtime uses of CuPy: it keeps a record of what was queued, captured and launched.

`log` has an entry for each thing that happened on the device, in order. Addresses are numbers; nothing is computed.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace, TracebackType
from typing import Any

import numpy as np

DEFAULT_STREAM = 7


@dataclass(frozen=True)
class Kernel:
    """A launch. args: the first parameters as 8-byte numbers; maps: what follows, 128 bytes each."""

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    stream: int
    args: tuple[int, ...]
    maps: tuple[bytes, ...] = ()


class FakeArray:
    """An array by its interface alone."""

    def __init__(self, address: int, shape: Sequence[int], typestr: str, strides: Sequence[int] | None = None) -> None:
        self.shape = tuple(shape)
        self.set: Any = None  # as of arrays that were allocated
        steps = None if strides is None else tuple(s * int(typestr[2:]) for s in strides)
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": self.shape, "typestr": typestr, "strides": steps, "version": 3,
        }  # fmt: skip


@dataclass
class Graph:
    """A captured graph."""

    cupy: "FakeCupy"
    launches: list[Any]

    def launch(self, stream: Any) -> None:
        self.cupy.log.append(("graph", stream.ptr, list(self.launches)))


class Stream:
    """A stream. Launches on it are noted down while it captures."""

    def __init__(self, cupy: "FakeCupy", ptr: int) -> None:
        self.cupy, self.ptr = cupy, ptr
        self.captured: list[Any] | None = None

    def __enter__(self) -> "Stream":
        self.cupy.current.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cupy.current.pop()

    def synchronize(self) -> None:
        self.cupy.log.append(("synchronize", self.ptr))

    def is_capturing(self) -> bool:
        return self.captured is not None

    def begin_capture(self) -> None:
        assert self.ptr, "a legacy default stream cannot be captured"
        self.captured = []

    def end_capture(self) -> Graph:
        assert self.captured is not None
        found, self.captured = self.captured, None
        return Graph(self.cupy, found)


@dataclass
class Streams:
    """`cupy.cuda.Stream` of CuPy 14, where `ExternalStream` is deprecated: there is none here."""

    cupy: "FakeCupy"

    def __call__(self, non_blocking: bool) -> Stream:
        return self.cupy.stream(100 + len(self.cupy.streams))

    def from_external(self, given: Any) -> Stream:
        version, ptr = given.__cuda_stream__()
        assert version == 0
        return self.cupy.stream(ptr)


@dataclass
class FakeCupy:
    """arity: number of 8-byte parameters of each entry, for what a launch is read back from."""

    arity: dict[str, int] = field(default_factory=dict)
    capability: str = "90"
    log: list[Any] = field(default_factory=list)
    loaded: list[bytes] = field(default_factory=list)
    attributes: list[tuple[str, int, int]] = field(default_factory=list)
    allocated: list[tuple[int, int]] = field(default_factory=list)
    current: list[Stream] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)
    entries: list[str] = field(default_factory=list)
    contents: dict[int, Any] = field(default_factory=dict)  # that arrays were given, by address

    def __post_init__(self) -> None:
        self.current.append(self.stream(DEFAULT_STREAM))
        self.cuda = SimpleNamespace(
            Device=lambda: SimpleNamespace(
                id=0, compute_capability=self.capability, synchronize=lambda: self.log.append(("synchronize", "device"))
            ),
            Stream=Streams(self),
            get_current_stream=lambda: self.current[-1],
            alloc=self._alloc,
            function=SimpleNamespace(Module=self._module),
            driver=SimpleNamespace(launchKernel=self._launch, funcSetAttribute=self._attribute),
        )
        self.lib = SimpleNamespace(stride_tricks=SimpleNamespace(as_strided=self._strided))

    def empty(self, count: int, dtype: str) -> FakeArray:
        kind = np.dtype(dtype)
        made = FakeArray(self._alloc(count * kind.itemsize).ptr, (count,), kind.str)
        made.set = partial(self._set, made)
        return made

    def _set(self, array: FakeArray, values: Any) -> None:
        interface = array.__cuda_array_interface__
        assert (values.shape, values.dtype.str) == (array.shape, interface["typestr"]), "as CuPy demands"
        self.contents[interface["data"][0]] = values.copy()

    def _strided(self, flat: FakeArray, shape: tuple[int, ...], strides: tuple[int, ...]) -> FakeArray:
        interface = flat.__cuda_array_interface__
        size = int(interface["typestr"][2:])
        return FakeArray(interface["data"][0], shape, interface["typestr"], [s // size for s in strides])

    def become_13(self) -> None:
        """CuPy before 14: no stream protocol, and `ExternalStream` by address."""
        self.cuda.Stream = self.cuda.Stream.__call__
        self.cuda.ExternalStream = self.stream

    def stream(self, ptr: int) -> Stream:
        return self.streams.setdefault(ptr, Stream(self, ptr))

    def _alloc(self, size: int) -> Any:
        address = 1 << 30
        if self.allocated:
            last, bytes_ = self.allocated[-1]
            address = last + -(-bytes_ // 512) * 512
        self.allocated.append((address, size))
        return SimpleNamespace(ptr=address)

    def _module(self) -> Any:
        return SimpleNamespace(load=self.loaded.append, get_function=self._function)

    def _function(self, entry: str) -> Any:
        self.entries.append(entry)
        return SimpleNamespace(ptr=5000 + len(self.entries) - 1)

    def _attribute(self, function: int, attribute: int, value: int) -> None:
        self.attributes.append((self.entries[function - 5000], attribute, value))

    def _launch(self, function: int, *rest: int) -> None:
        gx, gy, gz, bx, by, bz, shared, stream, parameters, extra = rest
        assert extra == 0
        entry = self.entries[function - 5000]
        args, maps = self._parameters(entry, parameters)
        self.queue(Kernel(entry, (gx, gy, gz), (bx, by, bz), shared, stream, args, maps))

    def _parameters(self, entry: str, address: int) -> tuple[tuple[int, ...], tuple[bytes, ...]]:
        count, maps = self.arity[entry], self.arity.get(f"{entry} maps", 0)
        places = np.frombuffer(ctypes.string_at(address, 8 * (count + maps)), np.uint64)
        args = tuple(int(np.frombuffer(ctypes.string_at(int(p), 8), np.uint64)[0]) for p in places[:count])
        return args, tuple(ctypes.string_at(int(p), 128) for p in places[count:])

    def queue(self, launch: Any) -> None:
        """Notes a launch down in the capture of its stream, or in the log."""
        captured = self.stream(launch.stream).captured
        (self.log if captured is None else captured).append(launch)
