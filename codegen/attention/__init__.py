"""Products of matrices whose rows are reduced while they are on the chip: softmax of scores, and all of attention.

`phases` cuts a segment at its reductions; `row_blocks` makes each cut a function of a point of the product and of the
reductions' results in its row; `schedule` says how blocks share the rows. The main loop is `attention_sm80.cuh`.
"""
