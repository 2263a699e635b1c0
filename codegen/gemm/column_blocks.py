"""A product with its columns in blocks, each with rows of its own: threads that share the blocks read parts of the
right matrix, where those that share rows read all of it.

    contract over k of a[m, k] b[k, n]   ->   contract of a[m, k] b[k, c, n / c] to [c, m, n / c], as [m, n]
"""

from fusion_ir import building as build
from fusion_ir.core.graph import Graph, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.ops import make
from fusion_ir.ops.contract import summed_sizes

LEAST_COLUMNS = 128  # of a block
STEP = 16  # elements: columns of a block are a multiple of it


def has_column_blocks(product: Node, blocks: int) -> bool:
    """Whether the last axis of a product, of one operand alone, can be cut into so many blocks."""
    size, last = product.sizes[-1], product.rank - 1
    of_one = (product.ints("a_axes")[last] < 0) != (product.ints("b_axes")[last] < 0)
    return of_one and size % (blocks * STEP) == 0 and size >= blocks * LEAST_COLUMNS


def in_column_blocks(segment: Graph, product: Node, blocks: int) -> tuple[Graph, Node]:
    """The segment with the product's columns in blocks, and the product: [blocks, ..., columns of a block]."""
    last, summed = product.rank - 1, len(summed_sizes(product))
    operands, places = list(product.args), [list(product.ints("a_axes")), list(product.ints("b_axes"))]
    side = 0 if places[0][last] >= 0 else 1
    cut = places[side][last]
    sizes = list(operands[side].sizes)
    sizes[cut : cut + 1] = [blocks, sizes[cut] // blocks]
    operands[side] = build.reshape(operands[side], sizes)
    places[side] = [p + (p > cut) for p in places[side]]
    roots: list[tuple[int, ...]] = []
    for i, axes in enumerate(places):
        block, column = (cut, cut + 1) if i == side else (-1, -1)
        roots.append((block, *axes[:last], column, *axes[last + 1 : last + 1 + summed]))
    attrs = {**dict(product.attrs), "a_axes": roots[0], "b_axes": roots[1]}
    made = make("contract", operands, attrs)
    turned = build.permute(made, [*range(1, last + 1), 0, last + 1])
    new = {product: build.reshape(turned, product.sizes)}
    for n in segment.nodes:
        if n not in new:
            new[n] = n.over(tuple([new[a] for a in n.args])) if any(new.get(a, a) is not a for a in n.args) else n
    outputs = tuple(OutputSpec(new[o.node], o.strides, o.donates) for o in segment.outputs)
    return Graph(segment.inputs, outputs), made
