"""Products of matrices whose rows are reduced while they are on the chip: softmax of scores, and all of attention.

`phases` cuts a segment at its reductions. On CUDA `row_blocks` makes each cut a function of a point of the product and
of the reductions' results in its row; `schedule` says how blocks share the rows, `masked_blocks` which of them are
blank; the main loop is `attention_sm80.cuh`. On a CPU (`codegen.families.attention_cpu`) rows lie in scratch memory;
`blank_columns` says which of their columns nothing reads.
"""
