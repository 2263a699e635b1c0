"""Kernel families, in the order in which ties are decided: one visible table."""

from codegen.families.naive import Naive
from codegen.families.pointwise import Pointwise
from codegen.kernel import Family

FAMILIES: dict[str, Family] = {family.name: family for family in (Pointwise(), Naive())}
