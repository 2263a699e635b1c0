"""Rewrites: equal tensors, produced otherwise. Two tables; each row is a declaration with its mathematics.

`RULES` make a graph smaller and lose nothing, so `simplify` applies them wherever they match; those in `split` open
choices to the search and close none. `ALTERNATIVES` trade one cost for another: what they offer stands beside a node,
and the search weighs both.
"""

from scheduler.rewrites.rule import Alternative, Rule
from scheduler.rewrites.rules.constant_folding import DISTRIBUTING
from scheduler.rewrites.rules.contraction_views import THROUGH
from scheduler.rewrites.rules.horizontal_contract import SIBLINGS
from scheduler.rewrites.rules.identities import IDENTITIES
from scheduler.rewrites.rules.matrix_chain import CHAINS
from scheduler.rewrites.rules.redundant import REDUNDANT
from scheduler.rewrites.rules.reuse_transposed import TWICE
from scheduler.rewrites.rules.scaling import SCALING
from scheduler.rewrites.rules.scatters import SCATTERS
from scheduler.rewrites.rules.sum_of_products import SUMS
from scheduler.rewrites.rules.sum_of_products_as_product import FACTORING
from scheduler.rewrites.rules.views import VIEWS

RULES: tuple[Rule, ...] = (*REDUNDANT, *IDENTITIES, *SCATTERS)

# What is likeliest to pay first: where there is no room for all, the last ones are left out.
ALTERNATIVES: tuple[Alternative, ...] = (
    *DISTRIBUTING,
    *CHAINS,
    *SIBLINGS,
    *FACTORING,
    *SCALING,
    *THROUGH,
    *SUMS,
    *TWICE,
    *VIEWS,
)
