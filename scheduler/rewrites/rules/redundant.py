"""Views and casts that move or change nothing, or of which two are one."""

from fusion_ir.core.node import Node
from fusion_ir.ops import axis_maps_of, make
from fusion_ir.ops.axis_maps import AxisSource
from scheduler.rewrites.rule import Rule


def _idle_view(node: Node) -> Node | None:
    if len(node.args) != 1 or node.sizes != node.args[0].sizes:  # most nodes: these are asked for no axis map
        return None
    axis_maps = axis_maps_of(node)
    if len(axis_maps) != 1:
        return None
    own = (s is not None and (s.step == 0 or s == AxisSource(axis)) for axis, s in enumerate(axis_maps[0]))
    return node.args[0] if all(own) else None


def _reshape_reshape(node: Node) -> Node | None:
    if node.op != "reshape" or node.args[0].op != "reshape":
        return None
    return make("reshape", [node.args[0].args[0]], {"shape": node.shape})


def _permute_permute(node: Node) -> Node | None:
    if node.op != "permute" or node.args[0].op != "permute":
        return None
    outer, inner = node.ints("dims"), node.args[0].ints("dims")
    return make("permute", [node.args[0].args[0]], {"dims": tuple(inner[d] for d in outer)})


def _cast_back(node: Node) -> Node | None:
    if node.op != "cast":
        return None
    inner = node.args[0]
    if inner.dtype == node.dtype:
        return inner
    if inner.op == "cast" and inner.args[0].dtype == node.dtype and inner.dtype.holds(node.dtype):
        return inner.args[0]
    return None


def _cast_cast(node: Node) -> Node | None:
    if node.op != "cast" or node.args[0].op != "cast":
        return None
    x, middle = node.args[0].args[0], node.args[0].dtype
    # Integers wrap where floats saturate: an integer that went through floats must fit.
    alike = x.dtype.is_float == middle.is_float or node.dtype.is_float or node.dtype.holds(x.dtype)
    if not (middle.holds(x.dtype) and alike):
        return None
    return make("cast", [x], {"dtype": node.dtype})


REDUNDANT: tuple[Rule, ...] = (
    Rule("idle-view", "view(x) = x where the view moves nothing", "exact", _idle_view),
    Rule("reshape-reshape", "reshape(reshape(x), s) = reshape(x, s)", "exact", _reshape_reshape),
    Rule("permute-permute", "permute(permute(x, p), q) = permute(x, p[q])", "exact", _permute_permute),
    Rule("cast-back", "cast(cast(x, wide), dtype of x) = x where wide holds every value of x", "exact", _cast_back),
    Rule("cast-cast", "cast(cast(x, wide), t) = cast(x, t) where wide holds every x", "exact", _cast_cast),
)
