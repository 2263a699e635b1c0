"""The parts of a graph: extents, constants, nodes, inputs and outputs with layouts, names; and limits on all of
these."""
