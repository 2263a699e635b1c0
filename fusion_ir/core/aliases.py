"""Names that PyTorch, JAX, NumPy and others have for our dtypes, ops and attributes.

An *alias* is another name of one thing and of nothing else: the wire format reads it, every other format refuses it and
says which name is meant. A *hint* is a name that may mean one of several things, or nearly one: it is never read, and
the error names these things. Graphs hold our names only, so no text and no key depends on these tables.
"""

import re
from collections.abc import Collection, Mapping

from fusion_ir.errors import nearest

DTYPE_ALIASES: Mapping[str, str] = {
    "float64": "f64", "double": "f64", "fp64": "f64",
    "float32": "f32", "single": "f32", "fp32": "f32",
    "float16": "f16", "half": "f16", "fp16": "f16",
    "bfloat16": "bf16", "bfloat": "bf16",
    "float8_e4m3fn": "f8e4m3", "float8e4m3fn": "f8e4m3", "f8e4m3fn": "f8e4m3", "fp8e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "float8e5m2": "f8e5m2", "fp8e5m2": "f8e5m2",
    "int8": "i8", "int16": "i16", "short": "i16", "int32": "i32", "int64": "i64", "long": "i64", "uint8": "u8",
    "bool_": "bool", "boolean": "bool",
}  # fmt: skip

# `float` is f32 to PyTorch and f64 to NumPy, `int` i32 to PyTorch and i64 to NumPy, `byte` u8 and i8.
DTYPE_HINTS: Mapping[str, tuple[str, ...]] = {
    "float": ("f32", "f64"), "float_": ("f64",), "int": ("i32", "i64"), "int_": ("i64",),
    "integer": ("i32", "i64"), "byte": ("u8", "i8"), "char": ("i8",), "uint": ("u8",), "ubyte": ("u8",),
    "pred": ("bool",), "index": ("i64",), "e4m3": ("f8e4m3",), "e5m2": ("f8e5m2",), "float8_e4m3": ("f8e4m3",),
    "f8_e4m3": ("f8e4m3",), "f8_e5m2": ("f8e5m2",), "fp8": ("f8e4m3", "f8e5m2"), "float8": ("f8e4m3", "f8e5m2"),
}  # fmt: skip

OP_ALIASES: Mapping[str, str] = {
    "absolute": "abs", "amax": "max", "amin": "min", "arccos": "acos", "arccosh": "acosh", "arcsin": "asin",
    "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2", "arctanh": "atanh", "astype": "cast",
    "bitwise_left_shift": "shift_left", "bitwise_right_shift": "shift_right", "bmm": "matmul", "clip": "clamp",
    "concat": "cat", "concatenate": "cat", "divide": "truediv", "expand_dims": "unsqueeze", "expit": "sigmoid",
    "fix": "trunc", "floor_divide": "floordiv", "greater": "gt", "greater_equal": "ge", "layernorm": "layer_norm",
    "left_shift": "shift_left", "less": "lt", "less_equal": "le", "ln": "log", "logical_right_shift":
    "shift_right_logical", "logistic": "sigmoid", "logsoftmax": "log_softmax", "mm": "matmul", "multiply": "mul",
    "nearbyint": "round", "negative": "neg", "not_equal": "ne", "power": "pow", "recip": "reciprocal",
    "right_shift": "shift_right", "rint": "round", "rmsnorm": "rms_norm", "sgn": "sign", "subtract": "sub",
    "swapaxes": "transpose", "swish": "silu", "true_divide": "truediv", "view": "reshape",
}  # fmt: skip

OP_HINTS: Mapping[str, tuple[str, ...]] = {
    "+": ("add",), "-": ("sub",), "*": ("mul",), "/": ("truediv",), "//": ("floordiv",), "%": ("remainder", "fmod"),
    "**": ("pow",), "@": ("matmul",), "==": ("eq",), "!=": ("ne",), "<": ("lt",), "<=": ("le",), ">": ("gt",),
    ">=": ("ge",), "and": ("logical_and",), "or": ("logical_or",), "xor": ("logical_xor",), "not": ("logical_not",),
    "arange": ("iota",), "broadcast": ("broadcast_to", "broadcast_in_dim"), "chunk": ("slice",), "constant": ("full",),
    "convert": ("cast",), "convert_element_type": ("cast",), "cross_entropy_loss": ("cross_entropy",),
    "dot": ("matmul",), "dot_general": ("contract",), "einsum": ("contract", "matmul"), "equal": ("eq",),
    "fill": ("full",), "fmax": ("maximum",), "fmin": ("minimum",), "gelu_new": ("gelu",), "gelu_tanh": ("gelu",),
    "gemm": ("matmul", "addmm"), "index_add": ("scatter_sum",), "inner": ("matmul",),
    "invert": ("bitwise_not", "logical_not"), "minus": ("sub",),
    "mod": ("remainder", "fmod"), "moveaxis": ("permute",), "movedim": ("permute",), "mv": ("matmul",),
    "narrow": ("slice",), "ones": ("full",), "plus": ("add",), "pow_": ("pow",), "reduce_max": ("max",),
    "reduce_mean": ("mean",), "reduce_min": ("min",), "reduce_prod": ("prod",), "reduce_sum": ("sum",),
    "rem": ("fmod",), "repeat": ("expand", "broadcast_to"), "scatter": ("scatter_sum",),
    "scatter_add": ("scatter_sum",), "segment_sum": ("scatter_sum",), "select": ("where", "index_select"),
    "split": ("slice",), "stddev": ("std",), "swapdims": ("transpose",), "take": ("index_select", "take_along_axis"),
    "tile": ("expand", "broadcast_to"), "times": ("mul",), "to": ("cast",), "variance": ("var",), "zeros": ("full",),
}  # fmt: skip

ATTRIBUTE_HINTS: Mapping[str, tuple[str, ...]] = {
    "a_max": ("high",), "a_min": ("low",), "begin": ("start",), "ddof": ("correction",),
    "dim": ("axis", "axes", "dims"), "dim0": ("first",), "dim1": ("second",), "end": ("stop",), "end_dim": ("last",),
    "epsilon": ("eps",), "fill_value": ("value",), "keepdim": ("keepdims",), "max": ("high",), "min": ("low",),
    "new_dtype": ("dtype",), "new_shape": ("shape",), "newshape": ("shape",), "other": ("y",), "p": ("probability",),
    "perm": ("dims",), "permutation": ("dims",), "size": ("shape",), "sizes": ("shape",), "start_dim": ("first",),
    "steps": ("step",), "strides": ("step",), "to": ("dtype",), "unbiased": ("correction",),
    "axis": ("axes", "dims", "dim"), "axes": ("axis", "dims", "dim"), "dims": ("axes", "axis", "dim"),
    "keepdims": ("keepdim",), "shape": ("new_shape",),
}  # fmt: skip

# Ops that the wire format takes apart, and that the text of the language, which has its own ops alone, does not know.
COMPOSITES: tuple[str, ...] = (
    "addcmul", "addmm", "baddbmm", "broadcast_to", "cross_entropy", "dropout", "embedding", "flatten", "frac", "gelu",
    "layer_norm", "linear", "log_softmax", "logsumexp", "matmul", "rms_norm", "silu", "softmax",
    "stack", "std", "threshold", "transpose", "tril", "triu", "truediv", "unsqueeze", "var_mean",
)  # fmt: skip

# torch.float32, jnp.bfloat16, aten::add, aten.add.Tensor, gpu::mul, mul_, DataType.BFloat16, float_type, __half
_BEFORE = re.compile(r"\A(?:\w+(?:\.|::))+|\A__")
_OVERLOAD = re.compile(r"\.(?:Tensor|Scalar|default)\Z")
_BEHIND = re.compile(r"(?<=[a-z0-9])(?:_type|_t|_)\Z")
_LONGEST = 40


def dtype_hint(name: str, known: Collection[str], ours: Mapping[str, str] | None = None) -> str:
    """A hint such as "; did you mean 'f32'?" for a name that is none of `known`: by what others call it, else by
    spelling. `ours` maps the `known` names of a format to ours, where it calls dtypes otherwise."""
    return _hint(name, known, {**DTYPE_ALIASES, **(ours or {})}, DTYPE_HINTS)


def op_hint(name: str, known: Collection[str]) -> str:
    """`dtype_hint` for the name of an op; a `known` name of a format may be an alias of ours."""
    return _hint(name, known, OP_ALIASES, OP_HINTS)


def attribute_hint(name: str, known: Collection[str]) -> str:
    """`dtype_hint` for the name of an op's attribute, or of a function's argument."""
    return _hint(name, known, {}, ATTRIBUTE_HINTS)


def _hint(name: str, known: Collection[str], aliases: Mapping[str, str], hints: Mapping[str, tuple[str, ...]]) -> str:
    if len(name) > _LONGEST:
        return ""
    plain = _plain(name)
    if alike := [k for k in known if _plain(k) == plain]:
        return f"; did you mean {alike[0]!r}?"
    for spelled in dict.fromkeys((name, name.lower(), plain)):
        meant = hints.get(spelled) or (aliases.get(spelled, spelled),)
        found = [k for m in meant for k in _spellings(m, known, aliases, hints)]
        if found:
            return f"; did you mean {' or '.join(repr(k) for k in found[:3])}?"
    return nearest(name, known)


def _spellings(
    meant: str, known: Collection[str], aliases: Mapping[str, str], hints: Mapping[str, tuple[str, ...]]
) -> list[str]:
    """The name among `known` for our name `meant`: ours where the format has it, else the first alias or sole hint of
    it; [] where there is none."""
    if meant in known:
        return [meant]
    found = [k for k in known if aliases.get(k, k) == meant] or [k for k in known if hints.get(k) == (meant,)]
    return found[:1]


def _plain(name: str) -> str:
    """torch.float32 -> float32, aten.add.Tensor -> add, mul_ -> mul, half_type -> half."""
    return _BEHIND.sub("", _BEFORE.sub("", _OVERLOAD.sub("", name))).lower()
