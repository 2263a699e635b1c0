"""Contractions tile by tile on CUDA, with the ops before and behind the product as functions of one of its points.

`problem` makes batches of one matrix product of a contraction; `points` turns the rest of the segment into functions
of (batch, row, column); `functor` prints them as C++ that the main loops in codegen/include call. `tma_boxes` takes the
place of `problem` for operands that tensor maps bring, in boxes of the axes as they lie in memory.
"""
