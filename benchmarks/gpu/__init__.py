"""Plans beside PyTorch, cuBLAS and a copy on a CUDA device."""
