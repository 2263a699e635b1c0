"""Rewrites: equal tensors, produced otherwise. Two tables; each row is a declaration with its mathematics.

`RULES` make a graph smaller and lose nothing, so `simplify` applies them wherever they match; those in `split` open
choices to the search and close none. `ALTERNATIVES` trade one cost for another: what they offer stands beside a node,
and the search weighs both.
"""

from scheduler.rewrites.chains import CHAINS
from scheduler.rewrites.distributing import DISTRIBUTING
from scheduler.rewrites.factoring import FACTORING
from scheduler.rewrites.identities import IDENTITIES
from scheduler.rewrites.redundant import REDUNDANT
from scheduler.rewrites.rule import Offer, Rule
from scheduler.rewrites.scaling import SCALING
from scheduler.rewrites.siblings import SIBLINGS
from scheduler.rewrites.sums import SUMS
from scheduler.rewrites.through import THROUGH
from scheduler.rewrites.twice import TWICE
from scheduler.rewrites.views import VIEWS

RULES: tuple[Rule, ...] = (*REDUNDANT, *IDENTITIES)

# What is likeliest to pay first: where there is no room for all, the last ones are left out.
ALTERNATIVES: tuple[Offer, ...] = (
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
