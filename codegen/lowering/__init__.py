"""Segment -> loop program: pull values through views, unify axes, coalesce digits, choose lanes, tile, place.

In this order: `index`, `value`, `puller` with the rules of `pull` (`views`, `sums`, `gathers`), `stores`, `unify`,
`write`, `coalesce`, `unroll`, `lanes`, `narrow`, `rows`, `blocks`, `tile`, `paths`, `place` with `join` -> `program`,
`across`; `access` says how wide each tensor may be read or written. `codegen.families.loop_nest` calls them in turn.
"""
