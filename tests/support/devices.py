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
