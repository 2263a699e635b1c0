"""Helpers of our processes: interrupts, standard output, logs, parents, priorities, rest for the garbage collector."""
