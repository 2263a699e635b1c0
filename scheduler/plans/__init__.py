"""Plans: a cover with its kernels as steps and buffers, and the way back."""
