"""Ops on lists of tensors, which optimizers are made of: the op on one tensor, for each of them."""

from collections.abc import Mapping
from typing import Any

from fuseplan_client.torch.aten.call import Call, Lowering, aten
from fuseplan_client.torch.wire import Refused, Tensor

_UNARY = """abs acos asin atan ceil cos cosh erf erfc exp expm1 floor lgamma log log10 log1p log2 neg reciprocal round
rsqrt sigmoid sign sin sinh sqrt tan tanh trunc""".split()


def _single(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


# foreach overload -> the op on one tensor; lists among its arguments are gone through side by side.
_OVERLOADS: Mapping[str, str] = {
    **{f"_foreach_{name}.default": f"{name}.default" for name in _UNARY if name != "lgamma"},
    **{
        f"_foreach_{name}.{ours}": f"{name}.{theirs}"
        for name in ("add", "sub", "mul", "div")
        for ours, theirs in (("List", "Tensor"), ("Scalar", "Tensor"), ("ScalarList", "Tensor"), ("Tensor", "Tensor"))
        if (name, ours) != ("sub", "Tensor")
    },
    **{
        f"_foreach_{name}.{ours}": f"clamp_{bound}.{theirs}"
        for name, bound in (("maximum", "min"), ("clamp_min", "min"), ("minimum", "max"), ("clamp_max", "max"))
        for ours, theirs in (("List", "Tensor"), ("Scalar", "default"), ("ScalarList", "default"))
    },
    "_foreach_pow.List": "pow.Tensor_Tensor",
    "_foreach_pow.Scalar": "pow.Tensor_Scalar",
    "_foreach_pow.ScalarList": "pow.Tensor_Scalar",
    "_foreach_lerp.List": "lerp.Tensor",
    "_foreach_lerp.Scalar": "lerp.Scalar",
    "_foreach_lerp.ScalarList": "lerp.Scalar",
    **{
        f"_foreach_{name}.{ours}": f"{name}.default"
        for name in ("addcmul", "addcdiv")
        for ours in ("Scalar", "ScalarList", "Tensor")
    },
    "_foreach_norm.Scalar": "linalg_vector_norm.default",
    "_foreach_copy.default": "copy.default",
    "_foreach_pow.ScalarAndTensor": "pow.Scalar",
}


def each(target: Any, single: Lowering, name: str) -> Lowering:
    """The lowering of an op on lists by that of the op on one tensor."""

    def lower(call: Call, *args: Any, dtype: Any = None, **kwargs: Any) -> list[Tensor]:
        given = list(args)
        if name in ("addcmul", "addcdiv"):
            given, kwargs = given[:3], {"value": given[3]} if len(given) > 3 else dict(kwargs)
            if isinstance(kwargs.get("value"), Tensor) and kwargs["value"].rank:  # one number for each tensor
                values = kwargs["value"]
                kwargs["value"] = [values.select(0, i) for i in range(values.shape[0])]
        if dtype is not None:
            raise Refused("a foreach op with a dtype")
        found: list[Tensor] = []
        for i, out in enumerate(call.out):
            one = [a[i] if isinstance(a, list | tuple) else a for a in given]
            named = {k: v[i] if isinstance(v, list | tuple) else v for k, v in kwargs.items()}
            found.append(single(Call(call.writer, target, out), *one, **named))
        return found

    return lower


def foreach_table(singles: Mapping[Any, Lowering]) -> Mapping[Any, Lowering]:
    """Lowerings of ops on lists, by those of `singles`."""
    table: dict[Any, Lowering] = {}
    for ours, theirs in _OVERLOADS.items():
        target = _single(theirs)
        table[_single(ours)] = each(target, singles[target], theirs.partition(".")[0])
    return table
