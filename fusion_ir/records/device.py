"""The device a plan was made for: what makes its code correct there, and what makes its times true there."""

import hashlib
from typing import Literal

from pydantic import Field

from fusion_ir.records.base import Record

TargetKind = Literal["cpu", "cuda", "emulator"]
Origin = Literal["detected", "specified"]


class Ceilings(Record):
    """The highest rates of a device, measured there once by our own kernels, or assumed for a device that is not there
    (`Device.origin`).

    `copy_gbps`, `read_gbps`: best bandwidth over all levels of memory that hold at most the given bytes, as
    (bytes, GB/s) pairs from small to large; the last pair is DRAM (bytes = 0 there: no limit). Bytes read and written
    both count. `launch_us`: an empty kernel, back to back. `fma_gflops`: f32, all cores, at the highest clock.
    `write_gbps`: writes alone, in main memory, of data other than zeros; None where it was not measured.
    `product_gflops`: on a CPU, (dtype, rate) pairs for multiply-adds of operands of that dtype, all cores, two
    operations each: by the instructions for that dtype where kernels use such, else by those for f32. () where that was
    not measured.
    """

    copy_gbps: tuple[tuple[int, float], ...]
    read_gbps: tuple[tuple[int, float], ...]
    launch_us: float
    fma_gflops: float
    # Left out where there is none: devices of before, and plans that hold them, keep their keys.
    write_gbps: float | None = Field(default=None, exclude_if=lambda gbps: gbps is None)
    product_gflops: tuple[tuple[str, float], ...] = Field(default=(), exclude_if=lambda rates: not rates)

    def gbps(self, bytes_: int, *, reads_only: bool = False) -> float:
        """Best bandwidth of the smallest level that can hold `bytes_`."""
        table = self.read_gbps if reads_only else self.copy_gbps
        return next(rate for limit, rate in table if limit == 0 or bytes_ <= limit)


class Device(Record):
    """One device. `arch` and `features` decide correctness; the rest explains times.

    arch: "x86-64" | "aarch64" for cpu, "sm_90a" ... for cuda and for emulator, which runs CUDA kernels on the CPU.
    features: sorted CPU flags that the compiler may use, and libraries that plans may call, or (). vector_bytes: widest
    register (cpu) or access (cuda).
    units: threads used (cpu) or multiprocessors (cuda).
    origin: "specified" for one that is not there, known from its data sheet: everything about it is predicted.
    """

    target: TargetKind
    name: str
    arch: str
    features: tuple[str, ...] = ()
    units: int
    vector_bytes: int
    cache_bytes: int
    memory_bytes: int
    toolchain: str
    driver: str = ""
    ceilings: Ceilings | None = None
    # Left out of the JSON of what is there, whose records, and the keys of plans that hold them, are older than this.
    origin: Origin = Field(default="detected", exclude_if=lambda origin: origin == "detected")

    @property
    def class_key(self) -> str:
        """Names the class of devices on which code for this one is correct: first part of a request key. Specified
        devices have classes of their own: a plan predicted for one never answers for a device that measures."""
        parts = (self.target, self.name, self.arch, ",".join(self.features), str(self.units))
        text = "|".join(parts if self.origin == "detected" else (*parts, self.origin))
        return f"{self.target}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
