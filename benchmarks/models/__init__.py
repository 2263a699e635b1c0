"""Whole models under `torch.compile(backend="fuseplan")` beside PyTorch's eager mode and Inductor."""
