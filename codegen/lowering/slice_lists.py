"""Lists of slices that a segment's scatters walk through: the place of a slice as a value of its own."""

from codegen.lowering.index import Axes, var
from codegen.lowering.program import SliceLists
from codegen.lowering.pull_rules import puller
from codegen.lowering.reduction_axes import ReductionAxes
from codegen.lowering.scatters import lists_of
from codegen.lowering.stores import MAX_VALUES
from codegen.lowering.value import Values
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import i64


def slice_lists(segment: Graph) -> tuple[SliceLists, ...]:
    """The lists of a segment, by the numbers that its listed slices have. Raises TooManyValues."""
    found: list[SliceLists] = []
    for places, extent in lists_of(segment):
        axes = Axes()
        number = axes.new(places.elements)
        pulling = puller(segment, Values(MAX_VALUES), ReductionAxes(axes), refine=False)
        found.append(SliceLists(number, extent, pulling.values.cast(pulling.pull(places, (var(number),)), i64)))
    return tuple(found)
