"""What our processes need: interrupts, standard output, logs, parents, priorities, rest for the garbage collector."""
