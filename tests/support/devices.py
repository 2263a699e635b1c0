"""Devices as records, for tests that generate code without running it."""

from fusion_ir.records import Device

CPU_DEVICE = Device(
    target="cpu", name="test cpu", arch="x86-64", units=2, vector_bytes=64, cache_bytes=32 << 20, memory_bytes=16 << 30,
    toolchain="g++",
)  # fmt: skip
CUDA_DEVICE = Device(
    target="cuda", name="test gpu", arch="sm_90a", units=132, vector_bytes=16, cache_bytes=50 << 20,
    memory_bytes=80 << 30, toolchain="nvrtc",
)  # fmt: skip


def with_small_cache(device: Device) -> Device:
    """The device as if its cache were 32 MiB at the most: what is timed lies in memory several times as large, which is
    gigabytes on machines with caches of hundreds of MiB, more than tests let their children have."""
    return device.model_copy(update={"cache_bytes": min(device.cache_bytes, 32 << 20)})
