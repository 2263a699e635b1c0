"""Kernel families, in the order in which ties are decided: one visible table."""

from codegen.families.aten import Aten
from codegen.families.attention import Attention
from codegen.families.gemv import Gemv
from codegen.families.matmul import Matmul
from codegen.families.naive import Naive
from codegen.families.normalization import Normalization
from codegen.families.pointwise import Pointwise
from codegen.families.reduction import Reduction
from codegen.families.scan import Scan
from codegen.families.scatter import Scatter
from codegen.families.transpose import Transpose
from codegen.families.wgmma import Wgmma
from codegen.kernel import Family

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Pointwise(),
        Transpose(),
        Reduction(),
        Normalization(),
        Scan(),
        Scatter(),
        Gemv(),
        Matmul(),
        Wgmma(),
        Attention(),
        Aten(),
        Naive(),
    )
}

# Families that accept every part of a segment that they accept: where they accept a whole graph, no part of it need be
# asked about.
TAKING_PARTS = frozenset({"pointwise"})
