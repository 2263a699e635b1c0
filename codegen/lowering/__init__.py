"""Segment -> loop program: pull values through views, unify axes, coalesce digits, choose lanes, tile, place.

In this order: `index`, `value`, `puller` with the rules of `pull` (`views`, `sums`, `gathers`, `scans`, `scatters`),
`stores`, `unify`, `write`, `coalesce`, `unroll`, `lanes`, `int_narrowing`, `unroll_and_jam`, `row_blocking`,
`lane_tiles`, `loop_order`, `placement` with `loop_fusion` -> `program`, `slice_lists`, `transpose_tiles`; `access` says
how wide each tensor may be read or written. `codegen.families.loop_nest` calls them in turn.
"""
