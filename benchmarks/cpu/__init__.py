"""The corpus against PyTorch on the CPU."""
