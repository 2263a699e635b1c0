"""Loop programs as C++ and CUDA text over the vocabulary of `codegen/include`."""
