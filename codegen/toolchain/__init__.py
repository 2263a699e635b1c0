"""Compilers: source of kernels to binaries, in children of `codegen.sandbox.slot`."""
