"""Running plans for CUDA devices: launches, calls of cuBLASLt, tensor maps, the prologue, CUDA graphs of whole
plans."""
