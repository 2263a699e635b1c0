"""Reductions and scans over loose arguments: any axes, keepdims, integer and bool operands."""

from fusion_ir.building.elementwise import exp, log, sqrt, sub, where
from fusion_ir.building.operands import Axes, as_float, cast, full, normal_axes, normal_axis, wide
from fusion_ir.building.shapes import broadcast_in_dim, flatten
from fusion_ir.core.node import Attr, Node
from fusion_ir.dtype import DTYPES, bool_, i64
from fusion_ir.ops import make


def _reduce(op: str, x: Node, axes: Axes, keepdims: bool, attrs: dict[str, Attr] | None = None) -> Node:
    chosen = normal_axes(axes, x.rank)
    if not chosen:  # nothing to reduce over: one element each
        x, chosen, keepdims = broadcast_in_dim(x, [1, *x.shape], range(1, x.rank + 1)), (0,), False
    return _restore(make(op, [x], {"axes": chosen, **(attrs or {})}), x, chosen, keepdims)


def _restore(result: Node, x: Node, axes: tuple[int, ...], keepdims: bool) -> Node:
    """The reduced axes again, with extent 1."""
    if not keepdims:
        return result
    sizes = [1 if a in axes else n for a, n in enumerate(x.sizes)]
    return broadcast_in_dim(result, sizes, [a for a in range(x.rank) if a not in axes])


def sum_(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Sum; floats keep their dtype, integers and bool give i64."""
    return _reduce("sum", x, axes, keepdims)


def prod(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Product; floats keep their dtype, integers and bool give i64."""
    return _reduce("prod", x, axes, keepdims)


def mean(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Mean; integers and bool are taken as f32."""
    return _reduce("mean", cast(x, as_float(x.dtype)), axes, keepdims)


def var(x: Node, axes: Axes = None, correction: int = 1, keepdims: bool = False) -> Node:
    """Sum of squared deviations over max(n - correction, 0)."""
    return _reduce("var", cast(x, as_float(x.dtype)), axes, keepdims, {"correction": correction})


def var_mean(x: Node, axes: Axes = None, correction: int = 1, keepdims: bool = False) -> tuple[Node, Node]:
    """(var, mean)."""
    return var(x, axes, correction, keepdims), mean(x, axes, keepdims)


def std(x: Node, axes: Axes = None, correction: int = 1, keepdims: bool = False) -> Node:
    """Square root of `var`, f32 inside where x has 16 bits."""
    dtype = as_float(x.dtype)
    return cast(sqrt(var(cast(x, wide(dtype)), axes, correction, keepdims)), dtype)


def max_(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Largest; NaN wins; any for bool."""
    return _reduce("any" if x.dtype == bool_ else "max", x, axes, keepdims)


def min_(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Smallest; NaN wins; all for bool."""
    return _reduce("all" if x.dtype == bool_ else "min", x, axes, keepdims)


def any_(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Whether one is not 0."""
    return _reduce("any", cast(x, bool_), axes, keepdims)


def all_(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """Whether none is 0."""
    return _reduce("all", cast(x, bool_), axes, keepdims)


def _arg(op: str, x: Node, axis: int | None, keepdims: bool) -> Node:
    x = cast(x, DTYPES["u8"]) if x.dtype == bool_ else x
    if axis is None:
        result = make(op, [flatten(x)], {"axis": 0})
        return _restore(result, x, tuple(range(x.rank)), keepdims)
    chosen = normal_axis(axis, x.rank)
    return _restore(make(op, [x], {"axis": chosen}), x, (chosen,), keepdims)


def argmax(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Lowest index of the largest element, i64; over the flattened tensor where axis is None."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x: Node, axis: int | None = None, keepdims: bool = False) -> Node:
    """Lowest index of the smallest element, i64; over the flattened tensor where axis is None."""
    return _arg("argmin", x, axis, keepdims)


def cumsum(x: Node, axis: int) -> Node:
    """Running sums along `axis`; integers and bool give i64."""
    if x.rank == 0:
        return x if x.dtype.is_float else cast(x, i64)
    return make("cumsum", [x], {"axis": normal_axis(axis, x.rank)})


def logsumexp(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """log of the sum of exponentials, shifted by the maximum; rows of -inf give -inf. f32 inside at 16 bits."""
    dtype = as_float(x.dtype)
    inner = cast(x, wide(dtype))
    top = max_(inner, axes, keepdims=True)
    infinite = make("isinf", [top])
    shift = where(infinite, full((), 0, inner.dtype), top)
    total = log(sum_(exp(sub(inner, shift)), axes, keepdims=True))
    result = make("add", [total, shift])
    if keepdims:
        return cast(result, dtype)
    return cast(make("squeeze", [result], {"axes": normal_axes(axes, x.rank)}) if x.rank else result, dtype)
