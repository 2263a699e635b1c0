"""Running compiled kernels in this process: on the CPU, and in the emulator. For child processes and tests."""
