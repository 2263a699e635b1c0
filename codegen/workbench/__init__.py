"""The workbench: compiles, checks and times kernels, and runs plans, all in child processes."""
