"""Contractions tile by tile on CUDA: what is computed before and behind the product, as functions of a point of it.

`problem` makes batches of one matrix product of a contraction; `points` turns what the rest of the segment computes
into functions of (batch, row, column); `functor` prints them as C++ that the main loops in codegen/include call.
`boxes` does what `problem` does for operands that tensor maps bring, in boxes of the axes as they lie in memory.
"""
