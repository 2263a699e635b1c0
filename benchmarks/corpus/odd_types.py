"""Products of what most libraries do not multiply as it is: operands that are cast first, whole numbers, doubles."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Builder, Case, Inputs, Peer, Sizes
from benchmarks.corpus.pytorch import F, Tensor, torch, wide
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f32, f64, i8

SQUARE: Sizes = {"m": 768, "k": 768, "n": 768}
MIDDLE: Sizes = {"m": 512, "k": 512, "n": 512}
SMALL = ({"m": 1, "k": 3, "n": 1}, {"m": 7, "k": 33, "n": 17}, {"m": 33, "k": 65, "n": 18})


def _case(
    name: str,
    build: Builder,
    peer: Peer,
    dtypes: tuple[str, ...] = ("f32",),
    sizes: Sizes = SQUARE,
) -> Case:
    return Case(name=name, kind="matmul", build=build, torch=peer, sizes=sizes, small=SMALL, bench_dtypes=dtypes)


def cast_product(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.matmul(ir.cast(inputs(m, k), inputs.wide), ir.cast(inputs(k, n), inputs.wide))


def torch_cast_product(x: Tensor, w: Tensor) -> Tensor:
    return wide(x) @ wide(w)


def cast_linear_gelu(inputs: Inputs, m: int, k: int, n: int) -> Node:
    x, w, bias = (ir.cast(inputs(*sizes), inputs.wide) for sizes in ((m, k), (n, k), (n,)))
    return ir.gelu(ir.linear(x, w, bias))


def torch_cast_linear_gelu(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(F.linear(wide(x), wide(w), wide(bias)))


def cast_weight(inputs: Inputs, m: int, k: int, n: int) -> Node:
    """One operand alone is of 16 bits."""
    return ir.matmul(ir.cast(inputs(m, k), inputs.wide), ir.cast(inputs(k, n, dtype=bf16), inputs.wide))


def torch_cast_weight(x: Tensor, w: Tensor) -> Tensor:
    return wide(x) @ w.to(wide(x).dtype)


def _stored(dtype: DType, multiplied: DType) -> Builder:
    def build(inputs: Inputs, m: int, k: int, n: int) -> Node:
        x, w = (ir.cast(inputs(*sizes, dtype=dtype), multiplied) for sizes in ((m, k), (k, n)))
        return ir.matmul(x, w)

    return build


def torch_as_float(x: Tensor, w: Tensor) -> Tensor:
    return x.float() @ w.float()


def torch_as_double(x: Tensor, w: Tensor) -> Tensor:
    return x.double() @ w.double()


def torch_as_int(x: Tensor, w: Tensor) -> Tensor:
    return x.int() @ w.int()


def torch_product(x: Tensor, w: Tensor) -> Tensor:
    return x @ w


def i8_to_i32(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.matmul(inputs(m, k, dtype=i8), inputs(k, n, dtype=i8), DTYPES["i32"])


def cast_result(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.cast(ir.matmul(inputs(m, k), inputs(k, n)), bf16)


def torch_cast_result(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w).bfloat16() if x.dtype != torch.float64 else x @ w


def mask_product(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.matmul(ir.cast(ir.gt(inputs(m, k), 0.0), inputs.dtype), inputs(k, n))


def torch_mask_product(x: Tensor, w: Tensor) -> Tensor:
    return (x > 0).to(w.dtype) @ w


def _whole(dtype: str) -> Case:
    return _case(f"product_{dtype}", _stored(DTYPES[dtype], DTYPES[dtype]), torch_product, sizes=MIDDLE)


ODD_TYPES = (
    _case("cast_product", cast_product, torch_cast_product, ("bf16", "f16")),
    _case("cast_linear_gelu", cast_linear_gelu, torch_cast_linear_gelu, ("bf16", "f16")),
    _case("cast_weight", cast_weight, torch_cast_weight),
    _case("i8_as_f32", _stored(i8, f32), torch_as_float),
    _case("u8_as_f32", _stored(DTYPES["u8"], f32), torch_as_float),
    _case("i16_as_f64", _stored(DTYPES["i16"], f64), torch_as_double),
    _case("f32_as_f64", _stored(f32, f64), torch_as_double),
    _case("product_f64", _stored(f64, f64), torch_product),
    _case("mask_product", mask_product, torch_mask_product),
    _case("i8_to_i32", i8_to_i32, torch_as_int, sizes=MIDDLE),
    *map(_whole, ("i8", "u8", "i16", "i32", "i64")),
)
