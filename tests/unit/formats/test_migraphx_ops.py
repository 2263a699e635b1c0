"""MIGraphX's ops: each form with its value and its layout."""

import random
import re
from collections.abc import Callable

import numpy as np
import pytest

from fusion_ir.formats.migraphx.ops import BUFFERS, MIGRAPHX_OPS, OPAQUE
from fusion_ir.formats.migraphx.reader import read_migraphx
from fusion_ir.formats.migraphx.row import takes_strides
from fusion_ir.formats.migraphx.views import VIEWS, lazy_strides
from fusion_ir.formats.signature import parameters
from fusion_ir.reference.interpreter import interpret
from fusion_ir.verify import verify
from tests.unit.formats.test_migraphx import lines

# Parameters by name: printed type, then values
GIVEN: dict[str, tuple[str, np.ndarray]] = {}


def _give(name: str, type_: str, array: np.ndarray) -> None:
    GIVEN[name] = (type_, array)


_rng = np.random.default_rng(3)
_give("x", "float_type, {2, 3}, {3, 1}", _rng.standard_normal((2, 3)).astype(np.float32))
_give("y", "float_type, {2, 3}, {3, 1}", _rng.standard_normal((2, 3)).astype(np.float32))
_give("z", "float_type, {2, 3}, {3, 1}", _rng.standard_normal((2, 3)).astype(np.float32))
_give("p", "float_type, {2, 3}, {3, 1}", _rng.uniform(0.1, 0.9, (2, 3)).astype(np.float32))
_give("r", "float_type, {2, 3}, {3, 1}", (_rng.standard_normal((2, 3)) * 3).round().astype(np.float32) / 2)
_give("o", "bool_type, {2, 3}, {3, 1}", _rng.random((2, 3)) < 0.5)
_give("q", "bool_type, {2, 3}, {3, 1}", _rng.random((2, 3)) < 0.5)
_give("i", "int32_type, {2, 3}, {3, 1}", _rng.integers(-9, 9, (2, 3)).astype(np.int32))
_give("j", "int32_type, {2, 3}, {3, 1}", _rng.integers(1, 5, (2, 3)).astype(np.int32))
_give("t", "float_type, {2, 3, 4}, {12, 4, 1}", _rng.standard_normal((2, 3, 4)).astype(np.float32))
_give("u", "float_type, {2, 3, 4}, {1, 8, 2}", _rng.standard_normal((2, 3, 4)).astype(np.float32))
_give("e", "float_type, {3}, {1}", _rng.standard_normal(3).astype(np.float32))
_give("s", "float_type, {1}, {0}", _rng.standard_normal(1).astype(np.float32))
_give("qs", "float_type, {2, 3}, {3, 1}", np.array([0.5, 0.25, 2, 0.125, 0.01, 3e-3], np.float32).reshape(2, 3))
_give("qz", "int8_type, {2, 3}, {3, 1}", np.array([3, -3, 100, -128, 0, 7], np.int8).reshape(2, 3))
_give("qu", "uint8_type, {2, 3}, {3, 1}", np.array([3, 128, 100, 255, 0, 7], np.uint8).reshape(2, 3))
_give("qi", "int8_type, {2, 3}, {3, 1}", np.array([3, -128, 127, -1, 0, 77], np.int8).reshape(2, 3))
_give("hs", "half_type, {2, 3}, {3, 1}", np.array([0.5, 0.25, 2, 0.1, 0.01, 3], np.float16).reshape(2, 3))
_give("hx", "half_type, {2, 3}, {3, 1}", np.array([1.25, -0.375, 9, -1, 7, 60000], np.float16).reshape(2, 3))
_give("k", "int64_type, {2}, {1}", np.array([2, -1]))
_give("n", "int64_type, {1}, {0}", np.array([1]))
_give("a", "half_type, {2, 3, 5}, {15, 5, 1}", _rng.standard_normal((2, 3, 5)).astype(np.float16))
_give("b", "half_type, {2, 5, 4}, {20, 4, 1}", _rng.standard_normal((2, 5, 4)).astype(np.float16))
_give("c", "half_type, {2, 3, 4}, {12, 4, 1}", _rng.standard_normal((2, 3, 4)).astype(np.float16))
_give("f", "int8_type, {3, 5}, {5, 1}", _rng.integers(-128, 128, (3, 5)).astype(np.int8))
_give("g", "int8_type, {5, 4}, {4, 1}", _rng.integers(-128, 128, (5, 4)).astype(np.int8))
_give("h", "int32_type, {3, 4}, {4, 1}", _rng.integers(-9, 9, (3, 4)).astype(np.int32))


def read_with_parameters(*text: str) -> str:
    """The lines behind the parameters that they use."""
    body = lines(*text)
    used = [n for n in GIVEN if re.search(rf"[(,]{n}[,)]", body)]
    return lines(*(f"{n} = @param:{n} -> {GIVEN[n][0]}" for n in used), *text)


def evaluate(*text: str) -> tuple[list[np.ndarray], list[tuple[int, ...]]]:
    """Values and strides of the outputs of `text`, whose parameters are those of `GIVEN`."""
    named = read_migraphx(read_with_parameters(*text))
    verify(named.graph)
    arrays = interpret(named.graph, [GIVEN[n][1] for n in named.input_names])
    return arrays, [o.strides for o in named.graph.outputs]


Expected = Callable[..., np.ndarray]
FLOAT = "float_type, {2, 3}, {3, 1}"
INT = "int32_type, {2, 3}, {3, 1}"
BOOL = "bool_type, {2, 3}, {3, 1}"


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def erf(x: np.ndarray) -> np.ndarray:
    steps = np.linspace(0, 1, 20001)
    return 2 / np.sqrt(np.pi) * x * np.trapezoid(np.exp(-((x[..., None] * steps) ** 2)), steps)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


# op with attributes and arguments, printed type, value in float64
POINTWISE: list[tuple[str, str, Expected]] = [
    ("abs(x)", FLOAT, np.abs), ("acos(p)", FLOAT, np.arccos), ("acosh(v)", FLOAT, np.arccosh),
    ("asin(p)", FLOAT, np.arcsin), ("asinh(x)", FLOAT, np.arcsinh), ("atan(x)", FLOAT, np.arctan),
    ("atanh(p)", FLOAT, np.arctanh), ("ceil(x)", FLOAT, np.ceil), ("cos(x)", FLOAT, np.cos),
    ("cosh(x)", FLOAT, np.cosh), ("erf(x)", FLOAT, erf), ("exp(x)", FLOAT, np.exp), ("floor(x)", FLOAT, np.floor),
    ("elu[alpha=0.5](x)", FLOAT, lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    ("leaky_relu[alpha=0.25](x)", FLOAT, lambda x: np.where(x > 0, x, 0.25 * x)),
    ("log(p)", FLOAT, np.log), ("log2(p)", FLOAT, np.log2), ("nearbyint(r)", FLOAT, np.round),
    ("neg(x)", FLOAT, np.negative), ("neg(i)", INT, np.negative), ("recip(x)", FLOAT, lambda x: 1 / x),
    ("relu(x)", FLOAT, lambda x: np.maximum(x, 0)), ("rsqrt(p)", FLOAT, lambda x: 1 / np.sqrt(x)),
    ("sigmoid(x)", FLOAT, sigmoid), ("sign(x)", FLOAT, np.sign), ("sin(x)", FLOAT, np.sin),
    ("sinh(x)", FLOAT, np.sinh), ("sqrt(p)", FLOAT, np.sqrt), ("tan(p)", FLOAT, np.tan), ("tanh(x)", FLOAT, np.tanh),
    ("add(x,y)", FLOAT, np.add), ("add(i,j)", INT, np.add), ("sub(x,y)", FLOAT, np.subtract),
    ("mul(x,y)", FLOAT, np.multiply), ("div(x,y)", FLOAT, np.divide),
    ("div(i,j)", INT, lambda i, j: np.trunc(i / j)), ("fmod(i,j)", INT, np.fmod), ("mod(i,j)", INT, np.mod),
    ("max(x,y)", FLOAT, np.maximum), ("min(x,y)", FLOAT, np.minimum), ("pow(p,x)", FLOAT, np.power),
    ("prelu(x,y)", FLOAT, lambda x, y: np.where(x < 0, x * y, x)),
    ("sqdiff(x,y)", FLOAT, lambda x, y: (x - y) ** 2),
    ("bitwise_and(i,j)", INT, lambda i, j: i.astype(int) & j.astype(int)),
    ("equal(i,j)", INT, np.equal), ("equal(i,j)", BOOL, np.equal), ("greater(x,y)", FLOAT, np.greater),
    ("greater_or_equal(i,j)", BOOL, np.greater_equal), ("less(x,y)", BOOL, np.less),
    ("less_or_equal(i,j)", BOOL, np.less_equal), ("logical_and(o,q)", BOOL, np.logical_and),
    ("logical_or(o,q)", BOOL, np.logical_or), ("logical_xor(o,q)", BOOL, np.logical_xor),
    ("not(o)", BOOL, np.logical_not), ("isnan(x)", BOOL, np.isnan), ("isinf(x)", FLOAT, np.isinf),
    ("where(o,x,y)", FLOAT, lambda o, x, y: np.where(o != 0, x, y)),
    ("clip(x,y,p)", FLOAT, lambda x, y, p: np.minimum(np.maximum(x, y), p)),
    ("clip[max_val=0.5,min_val=-0.25](x)", FLOAT, lambda x: np.clip(x, -0.25, 0.5)),
    ("convert[target_type=8](x)", INT, np.trunc), ("convert(i)", FLOAT, lambda i: i),
    ("gpu::add_relu(x,y,@1)", FLOAT, lambda x, y: np.maximum(x + y, 0)),
    ("gpu::add_sigmoid(x,y,@1)", FLOAT, lambda x, y: sigmoid(x + y)),
    ("gpu::add_tanh(x,y,@1)", FLOAT, lambda x, y: np.tanh(x + y)),
    ("gpu::mul_add(x,y,z,@1)", FLOAT, lambda x, y, z: x * y + z),
    ("gpu::mul_add_relu(x,y,z,@1)", FLOAT, lambda x, y, z: np.maximum(x * y + z, 0)),
    ("gpu::triadd(x,y,z,@1)", FLOAT, lambda x, y, z: x + y + z),
    ("gpu::triadd_relu(x,y,z,@1)", FLOAT, lambda x, y, z: np.maximum(x + y + z, 0)),
    ("gpu::triadd_sigmoid(x,y,z,@1)", FLOAT, lambda x, y, z: sigmoid(x + y + z)),
    ("gpu::triadd_tanh(x,y,z,@1)", FLOAT, lambda x, y, z: np.tanh(x + y + z)),
    ("gpu::mul(x,y,@1)", FLOAT, np.multiply),
    ("hip::copy(x,@1)", FLOAT, lambda x: x), ("hip::copy_to_gpu(x,@1)", FLOAT, lambda x: x),
    ("hip::copy_from_gpu(x)", FLOAT, lambda x: x), ("hip::sync_stream(x,y)", FLOAT, lambda x, y: x),
]  # fmt: skip
_give("v", "float_type, {2, 3}, {3, 1}", _rng.uniform(1.5, 4, (2, 3)).astype(np.float32))


def saturated(steps: np.ndarray, dtype: type, zero: np.ndarray | float = 0) -> np.ndarray:
    return np.clip(np.round(steps) + zero, np.iinfo(dtype).min, np.iinfo(dtype).max)


INT8, UINT8, HALF = (f"{name}_type, {{2, 3}}, {{3, 1}}" for name in ("int8", "uint8", "half"))
OTHERS: list[tuple[str, str, Expected]] = [
    ("quantizelinear(x,qs)", UINT8, lambda x, s: saturated(x / s, np.uint8)),
    ("quantizelinear(x,qs,qz)", INT8, lambda x, s, z: saturated(x / s, np.int8, z)),
    ("quantizelinear[axis=1](x,qs,qu)", UINT8, lambda x, s, z: saturated(x / s, np.uint8, z)),
    ("quantizelinear[out_type=5](hx,hs)", INT8, lambda x, s: saturated((x / s).astype(np.float16), np.int8)),
    ("quantizelinear[out_type=int32_type](x,qs)", INT, lambda x, s: saturated(x / s, np.int32)),
    ("dequantizelinear(qi,qs,qz)", FLOAT, lambda q, s, z: (q - z) * s),
    ("dequantizelinear(qi,qs)", FLOAT, lambda q, s: q * s),
    ("dequantizelinear(qu,hs)", HALF, lambda q, s: q * s),
    ("dequantizelinear(i,qs,j)", FLOAT, lambda q, s, z: (q - z) * s),
    ("dot(a,b)", "half_type, {2, 3, 4}, {12, 4, 1}", np.matmul),
    ("dot[alpha=1,beta=1](a,b)", "half_type, {2, 3, 4}, {12, 4, 1}", np.matmul),
    ("gpu::gemm[alpha=1,beta=1,compute_fp32=1,trans_batch=0,solution_idx=0](a,b,@1)",
     "half_type, {2, 3, 4}, {12, 4, 1}", np.matmul),
    ("gpu::gemm[alpha=1,beta=1,int8_x4_format=1](a,b,c,@1)", "half_type, {2, 3, 4}, {12, 4, 1}",
     lambda a, b, c: a @ b + c),
    ("gpu::gemm[alpha=0.5,beta=-2](a,b,c,@1)", "half_type, {2, 3, 4}, {12, 4, 1}",
     lambda a, b, c: 0.5 * (a @ b) - 2 * c),
    ("gpu::gemm[alpha=0.5,beta=0](a,b,c,@1)", "half_type, {2, 3, 4}, {4, 8, 1}", lambda a, b, c: 0.5 * (a @ b)),
    ("quant_dot(f,g)", "int32_type, {3, 4}, {4, 1}", np.matmul),
    ("gpu::quant_gemm[alpha=2,beta=3](f,g,h,@1)", "int32_type, {3, 4}, {4, 1}", lambda f, g, h: 2 * (f @ g) + 3 * h),
    ("softmax[axis=1](x)", FLOAT, lambda x: softmax(x, 1)),
    ("gpu::softmax[axis=-2](x,@1)", FLOAT, lambda x: softmax(x, 0)),
    ("logsoftmax[axis=1](x)", FLOAT, lambda x: np.log(softmax(x, 1))),
    ("prefix_scan_sum[axis=1,exclusive=0,reverse=0](x)", FLOAT, lambda x: np.cumsum(x, 1)),
    ("reduce_sum[axes={0, 2}](t)", "float_type, {1, 3, 1}, {3, 1, 1}", lambda t: t.sum((0, 2), keepdims=True)),
    ("reduce_sum[axes={}](i)", "int32_type, {1, 1}, {1, 1}", lambda i: i.sum(keepdims=True)),
    ("reduce_mean[axes={-1}](t)", "float_type, {2, 3, 1}, {3, 1, 1}", lambda t: t.mean(-1, keepdims=True)),
    ("reduce_max[axes={1}](t)", "float_type, {2, 1, 4}, {4, 4, 1}", lambda t: t.max(1, keepdims=True)),
    ("reduce_min[axes={1}](i)", "int32_type, {2, 1}, {1, 1}", lambda i: i.min(1, keepdims=True)),
    ("reduce_prod[axes={1}](t)", "float_type, {2, 1, 4}, {4, 4, 1}", lambda t: t.prod(1, keepdims=True)),
    ("reduce_all[axes={1}](o)", "bool_type, {2, 1}, {1, 1}", lambda o: o.all(1, keepdims=True)),
    ("reduce_any[axes={1}](o)", "bool_type, {2, 1}, {1, 1}", lambda o: o.any(1, keepdims=True)),
    ("argmax[axis=1,select_last_index=0](t)", "int64_type, {2, 1, 4}, {4, 4, 1}", lambda t: t.argmax(1)[:, None]),
    ("argmin[axis=0](x)", "int64_type, {1, 3}, {3, 1}", lambda x: x.argmin(0)[None]),
    ("concat[axis=1](x,y,x)", "float_type, {2, 9}, {9, 1}", lambda x, y: np.concatenate([x, y, x], 1)),
    ("gpu::concat[axis=0](x,y,@1)", "float_type, {4, 3}, {3, 1}", lambda x, y: np.concatenate([x, y])),
    ("pad[mode=0,pads={1, 0, 0, 2},value=0.5](x)", "float_type, {3, 5}, {5, 1}",
     lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=0.5)),
    ("gather[axis=1](t,k)", "float_type, {2, 2, 4}, {8, 4, 1}", lambda t, k: t[:, [2, -1]]),
    ("gather[axis=1](t,n)", "float_type, {2, 4}, {4, 1}", lambda t, n: t[:, 1]),
    ("gather[axis=0](e,n)", "float_type, {1}, {0}", lambda e, n: e[1:2]),
    ("identity(u)", "float_type, {2, 3, 4}, {1, 8, 2}", lambda u: u),
    ("contiguous(u)", "float_type, {2, 3, 4}, {12, 4, 1}", lambda u: u),
    ("gpu::contiguous(u,@1)", "float_type, {2, 3, 4}, {12, 4, 1}", lambda u: u),
    ("layout[permutation={2, 0, 1}](t)", "float_type, {2, 3, 4}, {3, 1, 6}", lambda t: t),
    ("reshape[dims={0, -1}](t)", "float_type, {2, 12}, {12, 1}", lambda t: t.reshape(2, 12)),
    ("reshape[dims={2, 12}](u)", "float_type, {2, 12}, {1, 2}", lambda u: u.reshape(2, 12)),
    ("reshape[dims={2, 12}](u)", "float_type, {2, 12}, {12, 1}", lambda u: u.reshape(2, 12)),
    ("reshape_lazy[dims={2, 12}](u)", "float_type, {2, 12}, {1, 2}", lambda u: u.reshape(2, 12)),
    ("reshape_lazy[dims={2, 3, 2, 2}](u)", "float_type, {2, 3, 2, 2}, {1, 8, 4, 2}", lambda u: u.reshape(2, 3, 2, 2)),
    ("flatten[axis=2](t)", "float_type, {6, 4}, {4, 1}", lambda t: t.reshape(6, 4)),
    ("flatten[axis=-3](t)", "float_type, {1, 24}, {24, 1}", lambda t: t.reshape(1, 24)),
    ("transpose[permutation={2, 0, 1}](u)", "float_type, {4, 2, 3}, {2, 1, 8}", lambda u: u.transpose(2, 0, 1)),
    ("slice[axes={1, 2},starts={-2, 1},ends={9, -1}](u)", "float_type, {2, 2, 2}, {1, 8, 2}", lambda u: u[:, 1:, 1:3]),
    ("step[axes={1},steps={2}](u)", "float_type, {2, 2, 4}, {1, 16, 2}", lambda u: u[:, ::2]),
    ("broadcast[axis=1,dims={2, 3, 4}](e)", "float_type, {2, 3, 4}, {0, 1, 0}",
     lambda e: np.broadcast_to(e[:, None], (2, 3, 4))),
    ("broadcast[axis=0,out_lens={2, 4},out_dyn_dims={}](s)", "float_type, {2, 4}, {0, 0}",
     lambda s: np.broadcast_to(s, (2, 4))),
    ("multibroadcast[out_lens={4, 2, 3},out_dyn_dims={}](x)", "float_type, {4, 2, 3}, {0, 3, 1}",
     lambda x: np.broadcast_to(x, (4, 2, 3))),
    ("multibroadcast[output_lens={2, 3}](s)", "float_type, {2, 3}, {0, 0}", lambda s: np.broadcast_to(s, (2, 3))),
    ("unsqueeze[axes={0, 3},steps={}](x)", "float_type, {1, 2, 3, 1}, {6, 3, 1, 1}", lambda x: x[None, ..., None]),
    ("unsqueeze[axes={1},steps={3}](t)", "float_type, {2, 3, 1, 4}, {12, 4, 4, 1}", lambda t: t[:, :, None]),
    ("unsqueeze[axes={2},steps={2}](u)", "float_type, {2, 3, 2, 2}, {1, 8, 4, 2}", lambda u: u.reshape(2, 3, 2, 2)),
    ("unsqueeze[axes={3, 0},steps={2}](t)", "float_type, {1, 2, 3, 2, 2}, {24, 12, 4, 2, 1}",
     lambda t: t.reshape(1, 2, 3, 2, 2)),
    ("unsqueeze[axes={0}](s)", "float_type, {1}, {1}", lambda s: s),
]  # fmt: skip


def op_of(form: str) -> str:
    return re.split(r"[\[(]", form)[0]


def names_of(form: str) -> list[str]:
    """The parameters that a form reads, each once."""
    return list(dict.fromkeys(n for n in form.rpartition("(")[2][:-1].split(",") if n in GIVEN))


@pytest.mark.parametrize(
    ("form", "type_", "expected"), [*POINTWISE, *OTHERS], ids=lambda v: v if isinstance(v, str) else ""
)
def test_form(form: str, type_: str, expected: Expected) -> None:
    overlaps = re.search(r"\{(0|.*, 0\b)[^{]*\}$", type_) is not None and "{0}" not in type_
    text = [f"@9 = {form} -> {type_}"]
    if overlaps:  # what repeats itself cannot be put out as it is
        dense = dense_type(type_)
        text.append(f"@10 = contiguous(@9) -> {dense}")
    (got,), (strides,) = evaluate(*text)
    wide = [GIVEN[n][1].astype(np.float64 if GIVEN[n][1].dtype.kind == "f" else np.int64) for n in names_of(form)]
    wanted = np.asarray(expected(*wide))
    assert got.shape == wanted.shape
    tolerance = {"float16": 2e-3, "float32": 2e-6}.get(str(got.dtype), 0)
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
    if not overlaps:
        stated = [int(s) for s in re.findall(r"\{([^}]*)\}", type_)[1].split(", ")]
        assert all(n == 1 or s == t for n, s, t in zip(got.shape, strides, stated, strict=True))


def dense_type(type_: str) -> str:
    """The type with dense strides."""
    name, sizes = type_.split(", ", 1)[0], [int(s) for s in re.findall(r"\{([^}]*)\}", type_)[0].split(", ")]
    strides = [int(np.prod(sizes[axis + 1 :])) for axis in range(len(sizes))]
    return f"{name}, {{{', '.join(map(str, sizes))}}}, {{{', '.join(map(str, strides))}}}"


def test_squeeze() -> None:
    text = ("@8 = unsqueeze[axes={0, 2}](x) -> float_type, {1, 2, 1, 3}, {6, 3, 3, 1}",)
    for attribute in ("axes={0, 2}", "axes={-2, 0}", "axes={}"):
        (got,), _ = evaluate(*text, f"@9 = squeeze[{attribute}](@8) -> {FLOAT}")
        np.testing.assert_array_equal(got, GIVEN["x"][1])
    text = ("@8 = reshape[dims={1, 1}](s) -> float_type, {1, 1}, {1, 1}",)
    (got,), _ = evaluate(*text, "@9 = squeeze[axes={}](@8) -> float_type, {1}, {0}")  # MIGraphX has no rank 0
    np.testing.assert_array_equal(got, GIVEN["s"][1])


def test_every_op_has_a_form() -> None:
    tested = {op_of(form) for form, _, _ in (*POINTWISE, *OTHERS)} | {"squeeze"}
    assert MIGRAPHX_OPS.keys() <= tested, MIGRAPHX_OPS.keys() - tested
    assert not (set(BUFFERS) | set(OPAQUE)) & MIGRAPHX_OPS.keys()


def test_every_parameter_can_be_given() -> None:
    for name, row in MIGRAPHX_OPS.items():
        assert parameters(row.value), name
        assert name in VIEWS or name == "gather" or not takes_strides(row)


def test_a_copy_that_is_written_over() -> None:
    """Older releases copy C to the result's buffer, and multiply into the copy."""
    named = read_migraphx(read_with_parameters(
        "@1 = hip::copy(c,@0) -> half_type, {2, 3, 4}, {12, 4, 1}",
        "@2 = gpu::gemm[alpha=1,beta=1](a,b,@1,@1) -> half_type, {2, 3, 4}, {12, 4, 1}",
    ))  # fmt: skip
    assert (named.input_names, named.output_names) == (("a", "b", "c"), ("@2",))


@pytest.mark.parametrize(
    ("sizes", "strides", "target", "expected"),
    [
        ((1, 348, 12, 64), (267264, 768, 64, 1), (348, 768), (768, 1)),
        ((4, 6), (6, 1), (2, 2, 3, 2), (12, 6, 2, 1)),
        ((4, 6), (1, 4), (24,), None),
        ((4, 6), (1, 4), (2, 2, 6), (2, 1, 4)),
        ((4, 6), (12, 1), (4, 3, 2), (12, 2, 1)),
        ((4, 6), (12, 1), (8, 3), None),
        ((4, 6), (0, 0), (24,), (0,)),
        ((2, 3, 4), (1, 8, 2), (6, 4), None),
        ((1, 1), (5, 7), (1,), (1,)),
        ((0, 3), (3, 1), (3, 0), (1, 1)),
        ((), (), (1, 1), (1, 1)),
    ],
)
def test_reshape_without_a_copy(
    sizes: tuple[int, ...], strides: tuple[int, ...], target: tuple[int, ...], expected: tuple[int, ...] | None
) -> None:
    assert lazy_strides(sizes, strides, target) == expected


def test_reshape_without_a_copy_reads_the_same_memory() -> None:
    """Against the addresses themselves, for layouts drawn at random."""
    rng = random.Random(5)
    found = 0
    for _ in range(400):
        sizes = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randint(1, 3)))
        memory = np.arange(np.prod([2 * n for n in sizes]))
        view = memory.reshape([2 * n for n in sizes])[
            tuple(slice(0, n * s, s) for n in sizes for s in [rng.choice((1, 2))])
        ]
        view = view.transpose(rng.sample(range(len(sizes)), len(sizes)))
        factors = [f for n in view.shape for f in ((2, 2) if n == 4 else (2, 3) if n == 6 else (n,))]
        target: list[int] = [1]
        for factor in factors:
            target = [*target, factor] if rng.random() < 0.6 else [*target[:-1], target[-1] * factor]
        strides = lazy_strides(view.shape, [s // 8 for s in view.strides], target)
        if strides is None:
            assert not np.shares_memory(view.reshape(target), memory)
            continue
        found += 1
        again = np.lib.stride_tricks.as_strided(view, target, [s * 8 for s in strides])
        np.testing.assert_array_equal(again, view.reshape(target))
    assert 50 < found < 390
