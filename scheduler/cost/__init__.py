"""Costs before anything is timed: bytes and operations, rooflines, their correction by other measurements, lower
bounds."""
