"""Limits of a multiprocessor of each CUDA architecture, and how many blocks of a kernel it holds by them.

Figures: CUDA C++ Programming Guide (13.0), "Compute Capabilities", tables "Technical Specifications per Compute
Capability" and "Shared Memory Capacity per Compute Capability"; units of allocation: CUDA Occupancy Calculator.
"""

import re
from dataclasses import dataclass
from functools import cache
from math import prod

from codegen.kernel import Launch
from fusion_ir.records import CompileReport

REGISTERS = 64 << 10  # of a multiprocessor, 32 bits each, of every architecture here
REGISTER_UNIT = 256  # registers are given to warps in units of so many
SHARED_UNIT = 128  # bytes
WARP = 32
ACCESS_BYTES = 16  # the most that one access of a thread moves, at an address that is a multiple of it


@dataclass(frozen=True)
class Architecture:
    """Limits of a multiprocessor: threads and blocks at a time, bytes of shared memory. block_shared_bytes: the most
    that one block may use, which has to opt in beyond 48 KiB. reserved_shared_bytes: bytes that the system takes for
    each block besides."""

    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    reserved_shared_bytes: int = 1 << 10


ARCHITECTURES: dict[int, Architecture] = {
    75: Architecture(1024, 16, 64 << 10, 64 << 10, reserved_shared_bytes=0),
    80: Architecture(2048, 32, 164 << 10, 163 << 10),
    86: Architecture(1536, 16, 100 << 10, 99 << 10),
    87: Architecture(1536, 16, 164 << 10, 163 << 10),
    89: Architecture(1536, 24, 100 << 10, 99 << 10),
    90: Architecture(2048, 32, 228 << 10, 227 << 10),
    100: Architecture(2048, 32, 228 << 10, 227 << 10),
    103: Architecture(2048, 32, 228 << 10, 227 << 10),
    120: Architecture(1536, 24, 100 << 10, 99 << 10),
}


@cache
def capability(arch: str) -> int:
    """90 for "sm_90a". Raises ValueError for what is no CUDA architecture."""
    found = re.fullmatch(r"sm_(\d{2,3})[af]?", arch)
    if found is None:
        raise ValueError(f"expected an architecture such as sm_90a, got {arch!r}")
    return int(found[1])


def architecture(arch: str) -> Architecture:
    """The row of an architecture such as "sm_90a"; where it has none, the row of the next lower one, whose limits have
    not been above its own so far. Raises ValueError for what is no CUDA architecture, or one before sm_75."""
    number = capability(arch)
    below = [known for known in ARCHITECTURES if known <= number]
    if not below:
        raise ValueError(f"{arch} is before sm_{min(ARCHITECTURES)}, the first that is known")
    return ARCHITECTURES[max(below)]


def occupancy(arch: str, threads: int, shared_bytes: int, report: CompileReport) -> int:
    """Blocks of `threads` threads that a multiprocessor holds at a time: limited by threads, blocks, registers, or
    shared memory, the kernel's dynamic `shared_bytes` and its static. 0: the block does not fit."""
    limits = architecture(arch)
    warps = -(-threads // WARP)
    shared = shared_bytes + (report.shared_bytes or 0)
    if shared > limits.block_shared_bytes or threads > 1024:
        return 0
    found = [limits.threads // (warps * WARP), limits.blocks]
    if report.registers:
        of_warp = -(-report.registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        # The four schedulers have a quarter of the registers each, so that a block's warps are shared out evenly.
        found.append(4 * (REGISTERS // 4 // of_warp) // warps)
    if shared + limits.reserved_shared_bytes:
        of_block = -(-(shared + limits.reserved_shared_bytes) // SHARED_UNIT) * SHARED_UNIT
        found.append(limits.shared_bytes // of_block)
    return min(found)


def launched(report: CompileReport, arch: str, launch: Launch) -> CompileReport:
    """The report completed by the launch: dynamic shared memory in bytes, blocks that a multiprocessor holds at a
    time, and occupancy."""
    threads = prod(launch.block)
    blocks = occupancy(arch, threads, launch.shared_bytes, report)
    held = blocks * -(-threads // WARP) * WARP / architecture(arch).threads
    update = {"dynamic_shared_bytes": launch.shared_bytes, "blocks": blocks, "occupancy": round(held, 3)}
    return report.model_copy(update=update)
