"""Arithmetic on NumPy arrays, bit for bit as the language defines it, where NumPy lacks it."""
