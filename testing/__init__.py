"""Graphs, functions and kernels that tests and benchmarks share."""
