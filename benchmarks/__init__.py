"""Comparisons with peers. Each writes what it measured, and on what, to benchmarks/results/."""
