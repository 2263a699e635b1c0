"""Running plans for CPUs: shared objects, threads, temporaries, and calls on tensors of NumPy's, PyTorch's or
anybody's."""
