"""Promotion, broadcasting and composites, against NumPy formulas in f64."""

import math

import ml_dtypes
import numpy as np
import pytest

from fusion_ir import building as build
from fusion_ir.arithmetic.conversions import round_to
from fusion_ir.core.graph import topological
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from fusion_ir.ops import OPS, RuleError
from testing.tensors import evaluate_all, evaluate_one, same_bits, tensor

RNG = np.random.default_rng(0)


def normal(*sizes: int) -> np.ndarray:
    return RNG.standard_normal(sizes).astype(np.float32)


def ops_of(*nodes: Node) -> list[str]:
    return [n.op for n in topological(nodes)]


# Promotion and broadcasting


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((f32, f32), f32), ((bf16, f16), f32), ((bf16, f32), f32), ((f16, f64), f64), ((i64, bf16), bf16),
        ((i8, u8), DTYPES["i16"]), ((u8, i32), i32), ((bool_, u8), u8), ((bool_, bool_), bool_), ((i32, i64), i64),
        ((DTYPES["f8e4m3"], DTYPES["f8e5m2"]), f32), ((DTYPES["f8e4m3"], bf16), bf16), ((bool_, i32, f16), f16),
    ],
)  # fmt: skip
def test_promote(dtypes, expected) -> None:
    assert build.promote(dtypes) == expected
    assert build.promote(dtypes[::-1]) == expected


def test_python_numbers_take_the_tensors_dtype_within_its_category() -> None:
    x, n, flag = tensor(0, (2,), bf16), tensor(0, (2,), i32), tensor(0, (2,), bool_)
    assert build.add(x, 1).dtype == bf16
    assert build.add(1.5, x).dtype == bf16
    assert build.add(n, 2).dtype == i32
    assert build.add(n, 2.0).dtype == f32
    assert build.mul(flag, 2).dtype == i64
    assert build.add(x, True).dtype == bf16
    with pytest.raises(RuleError, match="300"):
        build.add(tensor(0, (2,), u8), 300)


def test_operands_broadcast_with_trailing_axes_aligned() -> None:
    x, y = normal(4, 1, 3), normal(5, 1)
    assert same_bits(evaluate_one(build.add, x, y), x + y)
    assert build.add(tensor(0, (0, 3), f32), tensor(1, (1, 3), f32)).sizes == (0, 3)
    with pytest.raises(RuleError, match="do not broadcast: axis 1"):
        build.add(tensor(0, (2, 3), f32), tensor(1, (2, 2), f32))


def test_nothing_is_made_where_nothing_changes() -> None:
    x = tensor(0, (2, 3), f32)
    assert build.cast(x, f32) is x
    assert build.reshape(x, (2, -1)) is x
    assert build.permute(x, (0, 1)) is x
    assert build.expand(x, (2, -1)) is x
    assert build.broadcast_to(x, (2, 3)) is x
    assert build.squeeze(x) is x
    assert build.slice_(x, (0, 0), (9, 9)) is x
    assert build.pad(x, (0, 0), (0, 0)) is x
    assert build.cat([x]) is x
    assert build.pow_(x, 1) is x


def test_every_op_of_the_table_is_reachable() -> None:
    spelled = {name.rstrip("_") for name in build.__all__}
    assert OPS.keys() - spelled == {"contract"}


def test_bool_operands() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert evaluate_one(build.add, a, b).tolist() == [False, True, True, True]
    assert evaluate_one(build.mul, a, b).tolist() == [False, False, False, True]
    assert evaluate_one(build.maximum, a, b).tolist() == [False, True, True, True]
    assert evaluate_one(build.lt, a, b).tolist() == [False, True, False, False]
    assert evaluate_one(build.eq, a, b).tolist() == [True, False, False, True]
    assert evaluate_one(build.max_, a).item() is True
    assert evaluate_one(build.argmax, a).item() == 2
    with pytest.raises(RuleError, match="sub is not defined on bool"):
        build.sub(tensor(0, (2,), bool_), tensor(1, (2,), bool_))


def test_integers_in_float_functions() -> None:
    n = np.array([1, 4, 9])
    assert evaluate_one(build.sqrt, n).dtype == np.float32
    assert evaluate_one(build.truediv, n, np.array([2, 2, 2])).tolist() == [0.5, 2.0, 4.5]
    assert evaluate_one(build.div, n, np.array([2, 2, 2])).tolist() == [0, 2, 4]
    assert evaluate_one(build.floor, n).dtype == np.int64
    assert evaluate_one(build.isfinite, n).all()
    assert not evaluate_one(build.isnan, n).any()
    assert evaluate_one(build.mean, n).dtype == np.float32


def test_pow_spells_small_exponents_exactly() -> None:
    x = normal(50)
    for exponent, op in ((2, "square"), (0.5, "sqrt"), (-1, "reciprocal"), (-0.5, "rsqrt")):
        assert build.pow_(tensor(0, (3,), f32), exponent).op == op
    assert same_bits(evaluate_one(lambda a: build.pow_(a, 3), x), x * x * x)
    assert evaluate_one(lambda a: build.pow_(a, 5), np.array([2, -3, 0])).tolist() == [32, -243, 0]
    np.testing.assert_allclose(evaluate_one(lambda a: build.pow_(2.0, a), x), np.exp2(x), rtol=1e-6)
    with pytest.raises(RuleError, match="exponents from 0 to 64"):
        build.pow_(tensor(0, (3,), i32), -1)


def test_selection() -> None:
    x = np.array([-2, -0.5, np.nan, 0.5, 2], np.float32)
    assert same_bits(evaluate_one(lambda a: build.clamp(a, -1, 1), x), np.clip(x, -1, 1))
    assert same_bits(evaluate_one(lambda a: build.clamp(a, low=0), x), np.maximum(x, 0))
    assert same_bits(evaluate_one(lambda a: build.clamp(a, high=0), x), np.minimum(x, 0))
    thresholded = evaluate_one(lambda a: build.threshold(a, 0.5, 7), x)
    assert same_bits(thresholded, np.array([7, 7, np.nan, 7, 2], np.float32))
    assert same_bits(evaluate_one(lambda a: build.where(build.isnan(a), 0, a), x), np.nan_to_num(x))
    assert build.where(tensor(0, (3,), bool_), 1, 2.5).dtype == f32
    assert build.where(tensor(0, (3, 1), bool_), tensor(1, (4,), i8), 3).sizes == (3, 4)
    assert same_bits(evaluate_one(build.frac, x), x - np.trunc(x))


# Views


def test_views_with_loose_arguments() -> None:
    x = normal(2, 3, 4)
    cases = {
        "reshape": (build.reshape, ((4, -1),), x.reshape(4, -1)),
        "flatten": (build.flatten, (1,), x.reshape(2, 12)),
        "transpose": (build.transpose, (), x.swapaxes(1, 2)),
        "permute": (build.permute, ((-1, 0, 1),), x.transpose(2, 0, 1)),
        "unsqueeze": (build.unsqueeze, ((0, -1),), x[None, ..., None]),
        "slice": (build.slice_, ((0, -2, 1), (2, 9, -1), (1, 1, 2)), x[:, -2:, 1:-1:2]),
        "expand": (build.expand, ((5, -1, -1, -1),), np.broadcast_to(x, (5, 2, 3, 4))),
        "pad": (build.pad, ((0, 0, 1), (0, -1, 0), 3), np.pad(x[:, :2], ((0, 0), (0, 0), (1, 0)), constant_values=3)),
        "triu": (build.triu, (1,), np.triu(x, 1)),
        "tril": (build.tril, (-1,), np.tril(x, -1)),
    }
    for name, (function, args, expected) in cases.items():
        assert same_bits(evaluate_one(lambda a, f=function, b=args: f(a, *b), x), np.ascontiguousarray(expected)), name
    y = normal(2, 1, 4)
    assert same_bits(evaluate_one(lambda a, b: build.cat([a, b], -2), x, y), np.concatenate([x, y], 1))
    assert same_bits(evaluate_one(lambda a: build.stack([a, a], 1), x), np.stack([x, x], 1))
    assert evaluate_one(lambda a: build.squeeze(a, -2), y).shape == (2, 4)
    assert build.reshape(tensor(0, (0, 3), f32), (3, 0)).sizes == (3, 0)
    with pytest.raises(RuleError, match="do not fill"):
        build.reshape(tensor(0, (0, 3), f32), (0, -1))
    with pytest.raises(RuleError, match="axis 3 is out of range"):
        build.unsqueeze(tensor(0, (2,), f32), 3)


def test_gathers_with_loose_arguments() -> None:
    x, index = normal(5, 1), np.array([[3, 0, 1]])
    expected = np.take_along_axis(np.broadcast_to(x, (5, 3)), index, 0)
    assert same_bits(evaluate_one(lambda a, i: build.take_along_axis(a, i, 0), x, index), expected)
    table, words = normal(7, 4), RNG.integers(0, 7, (2, 3))
    assert same_bits(evaluate_one(build.embedding, words, table), table[words])
    assert same_bits(evaluate_one(lambda a, i: build.index_select(a, -1, i), table, np.array(2)), table[:, [2]])


def test_dropout_keeps_and_scales() -> None:
    x = np.ones((100, 100), np.float32)
    dropped, kept = evaluate_all(lambda a: build.dropout(a, 0.25, 1, 2), x)
    assert 0.7 < kept.mean() < 0.8
    assert same_bits(dropped, np.where(kept, np.float32(1 / 0.75), np.float32(0)))


# Reductions


def test_reductions_with_loose_arguments() -> None:
    x = normal(2, 3, 4)
    assert evaluate_one(lambda a: build.sum_(a, keepdims=True), x).shape == (1, 1, 1)
    assert evaluate_one(lambda a: build.max_(a, (-1, 0), keepdims=True), x).shape == (1, 3, 1)
    assert evaluate_one(lambda a: build.argmin(a, keepdims=True), x).shape == (1, 1, 1)
    assert evaluate_one(build.argmax, x).item() == x.argmax()
    assert same_bits(evaluate_one(lambda a: build.argmax(a, -2), x), x.argmax(1))
    assert same_bits(evaluate_one(lambda a: build.sum_(a, ()), x), x)
    assert evaluate_one(build.sum_, np.array(3.0)).item() == 3.0
    assert np.isnan(evaluate_one(build.var, np.array(3.0))).all()
    np.testing.assert_allclose(evaluate_one(lambda a: build.cumsum(a, -1), x), x.cumsum(-1), rtol=1e-6)
    variance, mean = evaluate_all(lambda a: build.var_mean(a, -1, 0, keepdims=True), x)
    np.testing.assert_allclose(variance, x.var(-1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(mean, x.mean(-1, keepdims=True), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(evaluate_one(lambda a: build.std(a, -1), x), x.std(-1, ddof=1), rtol=1e-5)
    assert evaluate_one(lambda a: build.any_(a, 0), np.array([[0, 2], [0, 0]])).tolist() == [False, True]
    with pytest.raises(RuleError, match="twice"):
        build.sum_(tensor(0, (2, 3), f32), (0, -2))


def test_logsumexp() -> None:
    x = normal(3, 5) * 50
    x[1] = -np.inf
    with np.errstate(all="ignore"):
        expected = np.logaddexp.reduce(x.astype(np.float64), axis=1)
    np.testing.assert_allclose(evaluate_one(lambda a: build.logsumexp(a, 1), x), expected, rtol=1e-6)
    assert evaluate_one(lambda a: build.logsumexp(a, 1, keepdims=True), x).shape == (3, 1)


# Products

MATMULS = [
    ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)), ((6, 1, 2, 3), (5, 3, 4)), ((5, 1, 3), (1, 3, 4)), ((1, 64, 1), (1, 1, 32)),
    ((1, 1), (1, 1)), ((7, 5, 2, 3), (3,)), ((2, 0), (0, 4)), ((0, 3), (3, 4)), ((1, 3), (5, 3, 1)),
    ((5, 1, 40), (40, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("a", "b"), MATMULS)
def test_matmul_is_one_contract_without_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    x, y = RNG.integers(-4, 5, a).astype(np.float32), RNG.integers(-4, 5, b).astype(np.float32)
    np.testing.assert_array_equal(evaluate_one(build.matmul, x, y), np.matmul(x, y))
    node = build.matmul(tensor(0, a, f32), tensor(1, b, f32))
    nodes = list(topological([node]))
    (contract,) = [n for n in nodes if n.op == "contract"]
    assert all(n.op in ("input", "squeeze", "contract", "broadcast_in_dim") for n in nodes)
    assert all(n.op != "broadcast_in_dim" for n in topological(contract.args))
    assert all(n != 1 for arg in contract.args for n in arg.sizes)


def test_matmul_promotes_and_rejects() -> None:
    assert build.matmul(tensor(0, (2, 3), bf16), tensor(1, (3, 4), f32)).dtype == f32
    assert build.matmul(tensor(0, (2, 3), i8), tensor(1, (3, 4), i8), i32).dtype == i32
    with pytest.raises(RuleError, match="sums over 3 and 4"):
        build.matmul(tensor(0, (2, 3), f32), tensor(1, (4, 5), f32))
    with pytest.raises(RuleError, match="rank 1 or more"):
        build.matmul(tensor(0, (), f32), tensor(1, (4,), f32))
    with pytest.raises(RuleError, match="axis 0 of operand b has extent 3"):
        build.matmul(tensor(0, (2, 2, 2), f32), tensor(1, (3, 2, 2), f32))


def test_einsum_sums_an_axis_of_one_operand_first() -> None:
    x, y = RNG.integers(-4, 5, (2, 3, 4)).astype(np.float32), RNG.integers(-4, 5, (4, 5)).astype(np.float32)
    got = evaluate_one(lambda a, b: build.einsum(a, b, (0, 1, 2), (2, 3), (3, 0)), x, y)
    np.testing.assert_array_equal(got, np.einsum("mjk,kn->nm", x, y))
    node = build.einsum(tensor(0, (2, 3, 4), bf16), tensor(1, (4, 5), bf16), (0, 1, 2), (2, 3), (0, 3))
    assert node.dtype == bf16
    (total,) = [n for n in topological([node]) if n.op == "sum"]
    assert total.dtype == f32
    with pytest.raises(RuleError, match="has labels"):
        build.einsum(tensor(0, (2, 2), f32), tensor(1, (2,), f32), (0, 0), (0,), ())


def test_linear_addmm_baddbmm() -> None:
    x, w, bias = (RNG.integers(-4, 5, s).astype(np.float32) for s in ((2, 3, 40), (5, 40), (5,)))
    np.testing.assert_array_equal(evaluate_one(build.linear, x, w, bias), x @ w.T + bias)
    np.testing.assert_array_equal(evaluate_one(build.linear, x, w), x @ w.T)
    np.testing.assert_array_equal(evaluate_one(build.linear, x, w[0]), x @ w[0])
    a, b, c = (RNG.integers(-4, 5, s).astype(np.float32) for s in ((3, 4), (4, 6), (6,)))
    got = evaluate_one(lambda p, q, r: build.addmm(p, q, r, beta=2, alpha=0.5), c, a, b)
    np.testing.assert_array_equal(got, 2 * c + 0.5 * (a @ b))
    nan = np.full(6, np.nan, np.float32)
    np.testing.assert_array_equal(evaluate_one(lambda p, q, r: build.addmm(p, q, r, beta=0), nan, a, b), a @ b)
    batched = evaluate_one(build.baddbmm, np.zeros((1, 3, 6), np.float32), np.stack([a, a]), np.stack([b, b]))
    np.testing.assert_array_equal(batched, np.stack([a @ b] * 2))
    with pytest.raises(RuleError, match="addmm takes matrices"):
        build.addmm(tensor(0, (2,), f32), tensor(1, (2, 2, 2), f32), tensor(2, (2, 2, 2), f32))


def test_linear_in_bf16_rounds_once() -> None:
    x, w = np.full((1, 2), 16, ml_dtypes.bfloat16), np.full((1, 2), 8, ml_dtypes.bfloat16)
    bias = np.array([1], ml_dtypes.bfloat16)
    x[0, 1] = 0.125  # 128 + 1 + 1: the product alone would round to 128 or 130
    assert evaluate_one(build.linear, x, w, bias).tolist() == [[130.0]]


# Composites


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * w + b


ERF = np.vectorize(math.erf)
COMPOSITES = {
    "softmax": (lambda x, w, b: build.softmax(x, -1), lambda x, w, b: softmax(x, -1)),
    "softmax over rows": (lambda x, w, b: build.softmax(x, 0), lambda x, w, b: softmax(x, 0)),
    "log_softmax": (lambda x, w, b: build.log_softmax(x, 1), lambda x, w, b: np.log(softmax(x, 1))),
    "layer_norm": (lambda x, w, b: build.layer_norm(x, -1, w, b), layer_norm),
    "rms_norm": (
        lambda x, w, b: build.rms_norm(x, -1, w),
        lambda x, w, b: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
    ),
    "gelu": (lambda x, w, b: build.gelu(x), lambda x, w, b: x * 0.5 * (1 + ERF(x / math.sqrt(2)))),
    "gelu tanh": (
        lambda x, w, b: build.gelu(x, "tanh"),
        lambda x, w, b: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "silu": (lambda x, w, b: build.silu(x), lambda x, w, b: x / (1 + np.exp(-x))),
    "addcmul": (lambda x, w, b: build.addcmul(x, w, b, 0.5), lambda x, w, b: x + 0.5 * w * b),
}


@pytest.mark.parametrize("name", COMPOSITES)
@pytest.mark.parametrize("dtype", [f64, f32, bf16, f16], ids=str)
def test_composites_against_formulas(name: str, dtype) -> None:
    """At 16 bits within one rounding of the f64 formula, because nothing is rounded inside."""
    built, formula = COMPOSITES[name]
    arrays = [round_to(normal(*s), dtype) for s in ((6, 33), (33,), (33,))]
    got = evaluate_one(built, *arrays)
    expected = formula(*(wide(a) for a in arrays))
    assert got.dtype == dtype.numpy
    rtol = {"f64": 1e-13, "f32": 1e-5, "bf16": 2.0**-8 * 1.01, "f16": 2.0**-11 * 1.01}[dtype.name]
    tiny = {"f64": 1e-14, "f32": 2e-6, "bf16": 1e-6, "f16": 1e-6}[dtype.name]
    np.testing.assert_allclose(wide(got), expected, rtol=rtol, atol=tiny)


def test_composites_round_once_at_16_bits() -> None:
    x = tensor(0, (4, 8), bf16)
    for node in (build.softmax(x), build.layer_norm(x), build.gelu(x), build.silu(x), build.rms_norm(x)):
        narrow = [n for n in topological([node]) if n.dtype == bf16]
        assert [n.op for n in narrow] == ["input", "cast"]


def test_gelu_rejects_other_words() -> None:
    with pytest.raises(RuleError, match="'none' or 'tanh'"):
        build.gelu(tensor(0, (2,), f32), "erf")  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [(6, 10), (10,), (3, 10, 4)])
@pytest.mark.parametrize("ignore", [None, 3])
def test_cross_entropy(sizes: tuple[int, ...], ignore: int | None) -> None:
    axis = 1 if len(sizes) > 1 else 0
    logits = normal(*sizes)
    targets = RNG.integers(0, 10, [n for a, n in enumerate(sizes) if a != axis])
    targets = np.asarray(targets)
    if targets.ndim:
        targets.reshape(-1)[0] = 3
    picked = np.take_along_axis(np.log(softmax(wide(logits), axis)), np.expand_dims(targets, axis), axis).squeeze(axis)
    counted = targets != ignore if ignore is not None else np.ones(targets.shape, bool)
    losses = np.where(counted, -picked, 0)
    for reduction, expected in (("none", losses), ("sum", losses.sum()), ("mean", losses.sum() / counted.sum())):
        got = evaluate_one(lambda x, t, r=reduction: build.cross_entropy(x, t, r, ignore), logits, targets)
        np.testing.assert_allclose(got, expected, rtol=1e-5)
    with pytest.raises(RuleError, match="reduction is 'max'"):
        build.cross_entropy(tensor(0, (2, 3), f32), tensor(1, (2,), i64), "max")  # type: ignore[arg-type]
    with pytest.raises(RuleError, match="integer targets of rank 1"):
        build.cross_entropy(tensor(0, (2, 3), f32), tensor(1, (2, 3), i64))


def test_build_speaks_of_ops_in_the_table() -> None:
    assert ops_of(build.sin(tensor(0, (2,), f32))) == ["input", "sin"]
    assert build.sin.__doc__ == OPS["sin"].doc
