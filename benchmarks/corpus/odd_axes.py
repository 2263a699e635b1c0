"""Products with axes in unusual orders, of parts, of rows picked out, of very few elements and of very many."""

from collections.abc import Mapping

import fusion_ir.building as ir
from benchmarks.corpus.case import Builder, Case, Inputs, Kind, Peer, Sizes
from benchmarks.corpus.pytorch import Tensor, torch, wide
from fusion_ir.core.node import Node
from fusion_ir.dtype import i64

ODD = (2, 3, 5, 7, 4, 6)  # extents of small cases


def _einsum(equation: str) -> tuple[Builder, Peer]:
    terms, out = equation.split("->")
    left, right = terms.split(",")

    def build(inputs: Inputs, **sizes: int) -> Node:
        a, b = (inputs(*(sizes[x] for x in term)) for term in (left, right))
        a_labels, b_labels, labels = ([ord(x) for x in term] for term in (left, right, out))
        return ir.einsum(a, b, a_labels, b_labels, labels)

    def peer(a: Tensor, b: Tensor) -> Tensor:
        return torch.einsum(equation, a, b).contiguous()

    return build, peer


def _product(name: str, equation: str, kind: Kind = "matmul", dtypes: tuple[str, ...] = ("f32",), **sizes: int) -> Case:
    build, peer = _einsum(equation)
    small: list[Mapping[str, int]] = [dict.fromkeys(sizes, 1), dict(zip(sizes, ODD, strict=False))]
    small.append({x: min(n, 8) + 1 for x, n in sizes.items()})
    return Case(name=name, kind=kind, build=build, torch=peer, sizes=sizes, small=tuple(small), bench_dtypes=dtypes)


def _case(
    name: str,
    build: Builder,
    peer: Peer,
    sizes: Sizes,
    kind: Kind = "matmul",
    dtypes: tuple[str, ...] = ("f32",),
    also: tuple[Peer, ...] = (),
) -> Case:
    small: list[Mapping[str, int]] = [dict(zip(sizes, ODD, strict=False))]
    small += [{x: min(n, most) + odd for x, n in sizes.items()} for most, odd in ((16, 1), (20, 0))]
    return Case(
        name=name, kind=kind, build=build, torch=peer, sizes=sizes, small=tuple(small), bench_dtypes=dtypes, also=also
    )


def cast_attention(inputs: Inputs, heads: int, tokens: int, features: int) -> Node:
    """Softmax of q k' times v, all in f32."""
    q, k, v = (ir.cast(inputs(heads, tokens, features), inputs.wide) for _ in range(3))
    scores = ir.mul(ir.matmul(q, ir.transpose(k)), features**-0.5)
    return ir.matmul(ir.softmax(scores), v)


def torch_cast_attention(q: Tensor, k: Tensor, v: Tensor, *, features: int) -> Tensor:
    q, k, v = wide(q), wide(k), wide(v)
    return torch.softmax(q @ k.mT * features**-0.5, -1) @ v


def gathered_product(inputs: Inputs, table: int, rows: int, inner: int, columns: int) -> Node:
    x, index = inputs(table, inner), inputs(rows, dtype=i64, domain=(0, table))
    return ir.matmul(ir.index_select(x, 0, index), inputs(inner, columns))


def torch_gathered_product(x: Tensor, index: Tensor, w: Tensor) -> Tensor:
    return x[index] @ w


def gathered_rows(inputs: Inputs, table: int, rows: int, inner: int) -> Node:
    x, index = inputs(table, inner), inputs(rows, dtype=i64, domain=(0, table))
    return ir.index_select(x, 0, index)


def torch_gathered_rows(x: Tensor, index: Tensor) -> Tensor:
    return x[index]


def torch_index_select(x: Tensor, index: Tensor) -> Tensor:
    return torch.index_select(x, 0, index)


def running_sums(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.cumsum(inputs(rows, columns), 1)


def torch_running_sums(x: Tensor) -> Tensor:
    return torch.cumsum(x, 1)


def running_columns(inputs: Inputs, rows: int, columns: int) -> Node:
    return ir.cumsum(inputs(rows, columns), 0)


def torch_running_columns(x: Tensor) -> Tensor:
    return torch.cumsum(x, 0)


def second_columns(inputs: Inputs, m: int, k: int, n: int) -> Node:
    """Every second column of one operand."""
    return ir.matmul(ir.slice_(inputs(m, 2 * k), (0, 0), (m, 2 * k), (1, 2)), inputs(k, n))


def torch_second_columns(x: Tensor, w: Tensor) -> Tensor:
    return x[:, ::2] @ w


def padded_product(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.matmul(ir.pad(inputs(m, k), (1, 2), (1, 2)), inputs(k + 4, n))


def torch_padded_product(x: Tensor, w: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (2, 2, 1, 1)) @ w


def joined_product(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.matmul(ir.cat([inputs(m, k), inputs(m, k)], 1), inputs(2 * k, n))


def torch_joined_product(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
    return torch.cat([x, y], 1) @ w


def spread_product(inputs: Inputs, z: int, m: int, k: int, n: int) -> Node:
    """One matrix times a batch of them."""
    return ir.matmul(ir.expand(ir.unsqueeze(inputs(m, k), 0), (z, m, k)), inputs(z, k, n))


def torch_spread_product(x: Tensor, w: Tensor) -> Tensor:
    return torch.matmul(x, w)


def turned_result(inputs: Inputs, m: int, k: int, n: int) -> Node:
    return ir.relu(ir.transpose(ir.matmul(inputs(m, k), inputs(k, n))))


def torch_turned_result(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu((x @ w).T.contiguous())


def triangle_product(inputs: Inputs, m: int, n: int) -> Node:
    return ir.matmul(ir.tril(inputs(m, m)), inputs(m, n))


def torch_triangle_product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tril(x) @ w


def low_rank(inputs: Inputs, rows: int, rank: int, middle: int) -> Node:
    """(x A) C of three operands that all change: x (A C) takes far less."""
    x, a, c = inputs(rows, rank), inputs(rank, middle), inputs(middle, rank)
    return ir.matmul(ir.matmul(x, a), c)


def torch_low_rank(x: Tensor, a: Tensor, c: Tensor) -> Tensor:
    return x @ a @ c


ODD_AXES = (
    _product("sums_apart", "kmj,kjn->mn", k=64, m=512, j=16, n=512),
    _product("sums_crossed", "mjk,kjn->mn", m=512, j=32, k=32, n=512),
    _product("batch_last", "mkz,knz->mnz", m=256, k=256, n=256, z=16, dtypes=("f32", "bf16")),
    _product("batch_in_the_middle", "mzk,kzn->mzn", m=256, z=16, k=256, n=256),
    _product("heads_in_rows", "zthd,zshd->zhts", z=4, t=256, h=8, d=64, s=256),
    _product("three_batches", "xyzmk,zyxkn->yxmzn", x=4, y=6, z=4, m=64, k=64, n=64),
    _product("rows_in_two", "mkp,kn->mpn", m=64, k=512, p=16, n=512),
    _product("both_turned", "km,nk->nm", k=700, m=701, n=702),
    _product("odd_extents", "mk,kn->mn", m=509, k=521, n=503),
    _product("short_and_long", "mk,kn->mn", m=48, k=20000, n=48),
    _product("many_small", "zmk,zkn->zmn", "memory", z=20000, m=16, k=16, n=16),
    _product("many_tiny", "zmk,zkn->zmn", "memory", z=400000, m=4, k=4, n=4),
    _product("few_large", "zmk,zkn->zmn", z=2, m=640, k=640, n=640),
    _product("outer", "mk,kn->mn", "memory", m=4096, k=1, n=4096),
    _product("matrix_by_vector", "mk,k->m", "memory", m=4000, k=4001),
    _product("vector_by_matrix", "k,kn->n", "memory", k=4001, n=4000),
    _case(
        "cast_attention",
        cast_attention,
        torch_cast_attention,
        {"heads": 8, "tokens": 512, "features": 64},
        dtypes=("bf16", "f16"),
    ),
    _case(
        "gathered_product",
        gathered_product,
        torch_gathered_product,
        {"table": 4096, "rows": 1024, "inner": 512, "columns": 512},
    ),
    _case(
        "gathered_rows",
        gathered_rows,
        torch_gathered_rows,
        {"table": 8192, "rows": 40000, "inner": 512},
        "memory",
        ("f32", "bf16"),
        (torch_index_select,),
    ),
    _case("running_sums", running_sums, torch_running_sums, {"rows": 2048, "columns": 6144}, "memory", ("f32", "bf16")),
    _case("running_columns", running_columns, torch_running_columns, {"rows": 2048, "columns": 6144}, "memory"),
    _case("second_columns", second_columns, torch_second_columns, {"m": 768, "k": 768, "n": 768}),
    _case("padded_product", padded_product, torch_padded_product, {"m": 766, "k": 764, "n": 768}),
    _case("joined_product", joined_product, torch_joined_product, {"m": 768, "k": 384, "n": 768}),
    _case("spread_product", spread_product, torch_spread_product, {"z": 16, "m": 128, "k": 256, "n": 256}),
    _case("turned_result", turned_result, torch_turned_result, {"m": 768, "k": 512, "n": 768}),
    _case("triangle_product", triangle_product, torch_triangle_product, {"m": 768, "n": 768}),
    _case("low_rank", low_rank, torch_low_rank, {"rows": 2048, "rank": 16, "middle": 1536}),
)
