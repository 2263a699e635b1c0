"""Products spelled as broadcast, multiply and sum: the graph of the product where that is exact, else as they are."""

from collections.abc import Callable, Sequence
from itertools import permutations

import pytest

from fusion_ir import building as build
from fusion_ir.building.recognise_contractions import EXACT_IN_F32, contracted
from fusion_ir.core.graph import Graph
from fusion_ir.core.named import NamedGraph
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, DType, bf16, f16, f32, f64
from fusion_ir.formats import read
from fusion_ir.formats.json.wire import from_wire, to_wire
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.reference.interpreter import interpret
from fusion_ir.reference.sample_inputs import sample_inputs
from fusion_ir.text.printing import print_graph
from fusion_ir.verify import verify
from testing.tensors import graph_of, same_bits, spec

EXTENT = {"b": 2, "m": 3, "n": 4, "k": 5, "l": 3, "o": 2}


def spread(x: Node, own: str, root: str, cast_first: bool) -> Node:
    """x with axes `own` as f32 with axes `root`, its missing ones broadcast."""
    x = build.cast(x, f32) if cast_first else x
    x = build.permute(x, [own.index(c) for c in root if c in own])
    x = build.broadcast_in_dim(
        x, [EXTENT[c] if c in own else 1 for c in root], [i for i, c in enumerate(root) if c in own]
    )
    return build.cast(build.expand(x, [EXTENT[c] for c in root]), f32)


def spelled(a: str, b: str, out: str, dtype: DType, to: DType = f32, cast_first: bool = True) -> Graph:
    """einsum(a, b -> out) as casts, broadcasts, a product and a sum."""
    root = out + "".join(dict.fromkeys(c for c in a + b if c not in out))

    def make(x: Node, y: Node) -> Node:
        product = build.mul(spread(x, a, root, cast_first), spread(y, b, root, not cast_first))
        return build.cast(build.sum_(product, range(len(out), len(root))), to)

    return graph_of([spec([EXTENT[c] for c in s], dtype) for s in (a, b)], make)


def product(a: str, b: str, out: str, dtype: DType, to: DType = f32) -> Graph:
    left, right, result = ([ord(c) for c in s] for s in (a, b, out))
    specs = [spec([EXTENT[c] for c in s], dtype) for s in (a, b)]
    return graph_of(specs, lambda x, y: build.einsum(x, y, left, right, result, to))


MAPPINGS = [("".join(a), "".join(b), "".join(out))
            for a in permutations("mk") for b in permutations("kn") for out in permutations("mn")]  # fmt: skip
MAPPINGS += [
    ("bmk", "bkn", "bmn"),
    ("kbm", "nbk", "nmb"),
    ("mkl", "lnk", "mn"),
    ("mok", "kn", "nom"),
    ("mk", "kbn", "bmn"),
]


@pytest.mark.parametrize("names", MAPPINGS, ids="-".join)
@pytest.mark.parametrize("cast_first", [True, False])
def test_it_is_the_graph_of_the_product(names: tuple[str, str, str], cast_first: bool) -> None:
    for to in (f32, bf16):
        given = spelled(*names, bf16, to, cast_first)
        found = contracted(given)
        verify(found)
        assert graph_key(found) == graph_key(product(*names, bf16, to))
        inputs = sample_inputs(given, 0, integers=True)
        assert same_bits(interpret(found, inputs)[0], interpret(given, inputs)[0])


@pytest.mark.parametrize("dtype", EXACT_IN_F32)
def test_every_dtype_whose_products_f32_holds(dtype: str) -> None:
    assert [n.op for n in contracted(spelled("mk", "nk", "mn", DTYPES[dtype])).nodes] == ["input", "input", "contract"]


def test_axes_of_extent_one_come_back() -> None:
    def make(x: Node, y: Node) -> Node:
        x, y = (build.reshape(build.cast(t, f32), s) for t, s in ((x, [1, 3, 1, 5]), (y, [1, 1, 4, 5])))
        return build.sum_(build.mul(build.expand(x, [1, 3, 4, 5]), build.expand(y, [1, 3, 4, 5])), 3)

    given = graph_of([spec((3, 5), f16), spec((4, 5), f16)], make)
    found = contracted(given)
    assert [n.op for n in found.nodes] == ["input", "input", "contract", "broadcast_in_dim"]
    inputs = sample_inputs(given, 1, integers=True)
    assert same_bits(interpret(found, inputs)[0], interpret(given, inputs)[0])


def left_alone(make: Callable[..., Node | Sequence[Node]], dtype: DType = bf16) -> bool:
    given = graph_of([spec((3, 5), dtype), spec((4, 5), dtype)], make)
    return contracted(given) is given


def both(x: Node, y: Node, to: DType = f32) -> Node:
    """[3, 4, 5], the products before they are summed."""
    x, y = build.cast(x, to), build.cast(y, to)
    return build.mul(build.expand(build.unsqueeze(x, 1), [3, 4, 5]), build.expand(build.unsqueeze(y, 0), [3, 4, 5]))


def test_what_is_not_exact_or_no_product_stays() -> None:
    assert not left_alone(lambda x, y: build.sum_(both(x, y), 2))
    assert left_alone(lambda x, y: build.sum_(both(x, y), 2), f32), "products are rounded to f32 first"
    assert left_alone(lambda x, y: build.sum_(both(x, y, bf16), 2)), "products are rounded to bf16 first"
    assert left_alone(lambda x, y: build.sum_(both(x, y, f64), 2)), "the sum is in f64"
    assert left_alone(lambda x, y: build.sum_(both(x, y), 1)), "summed in one operand only"
    assert left_alone(lambda x, y: build.max_(both(x, y), 2))
    assert left_alone(lambda x, y: [build.sum_(both(x, y), 2), both(x, y)]), "the product is wanted itself"
    assert left_alone(lambda x, y: [build.sum_(both(x, y), 2), build.exp(both(x, y))]), "somebody else reads it"
    assert left_alone(lambda x, y: build.sum_(build.square(build.cast(x, f32)), 1)), "no second operand"
    assert left_alone(
        lambda x, y: build.sum_(build.mul(build.cast(x, f32), build.cast(build.slice_(y, (0, 0), (1, 5)), f32)), 1)
    ), "a matrix and a vector: a reduction"
    assert left_alone(lambda x, y: build.sum_(both(build.exp(build.cast(x, f32)), y), 2)), "an operand is f32"


def test_a_sum_that_others_read_is_not_rounded() -> None:
    def make(x: Node, y: Node) -> list[Node]:
        total = build.sum_(both(x, y), 2)
        return [build.cast(total, bf16), build.exp(total)]

    found = contracted(graph_of([spec((3, 5), bf16), spec((4, 5), bf16)], make))
    (contract,) = (n for n in found.nodes if n.op == "contract")
    assert contract.dtype == f32


def test_computed_operands() -> None:
    found = contracted(
        graph_of([spec((3, 5), bf16), spec((4, 5), bf16)], lambda x, y: build.sum_(both(build.exp(x), y), 2))
    )
    assert sorted(n.op for n in found.nodes) == ["contract", "exp", "input", "input"]


def test_one_behind_another() -> None:
    """A chain of two, each spelled so."""

    def make(x: Node, y: Node) -> Node:
        first = build.cast(build.sum_(both(x, y), 2), bf16)  # [3, 4]
        a = build.expand(build.unsqueeze(build.cast(first, f32), 1), [3, 5, 4])
        b = build.expand(build.unsqueeze(build.cast(build.permute(y, [1, 0]), f32), 0), [3, 5, 4])
        return build.sum_(build.mul(a, b), 2)

    given = graph_of([spec((3, 5), bf16), spec((4, 5), bf16)], make)
    found = contracted(given)
    assert [n.op for n in found.nodes].count("contract") == 2
    inputs = sample_inputs(given, 0, integers=True)
    assert same_bits(interpret(found, inputs)[0], interpret(given, inputs)[0])


def test_readers_do_it_and_the_text_of_a_graph_is_exact() -> None:
    given, wanted = spelled("mk", "nk", "mn", bf16, bf16), product("mk", "nk", "mn", bf16, bf16)
    assert graph_key(from_wire(to_wire(NamedGraph.unnamed(given))).graph) == graph_key(wanted)
    assert graph_key(read(print_graph(given)).graph) == graph_key(given)
