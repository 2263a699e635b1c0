"""Kernels in the emulator. Needs a C++ compiler, no GPU."""
