"""No contraction of more than 10^5 multiply-adds is computed by `naive`, on any target: whatever is done to operands
before and to the product after it, in whatever order their axes are."""

import os
import random
from collections.abc import Callable

import pytest

from codegen.families import FAMILIES
from codegen.families.contraction_limits import is_heavy
from codegen.hardware.gpus import GPUS, specified
from fusion_ir import building as build
from fusion_ir.core.graph import Graph, InputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import DTYPES, bf16, f32, f64, i32, i64
from fusion_ir.records import Device
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.enumeration import Candidate
from scheduler.tune import tune, unfused_segments
from scheduler.tuning.trials import Ledger
from tests.support.devices import CPU_DEVICE
from tests.support.products import dense_graph, spec
from tests.support.whole import WHOLE

SEEDS = int(os.environ.get("FUSEPLAN_HEAVY_PRODUCTS", "36" if WHOLE else "12"))  # of a long run: 2000
TURING = specified("a100", "13.0").model_copy(update={"name": "test sm_75", "arch": "sm_75"})
DEVICES = [CPU_DEVICE, TURING, *(specified(name, "13.0") for name in GPUS)]

# Rows, columns, products, batches: several axes of each, of extents that make a heavy contraction.
SIZES = (
    *("m64 n96 k256", "m8 p16 n96 k128", "m128 n8 q16 k8 l16", "m1024 n24 k64", "m40 n700 k60"),
    *("m512 n64 k24", "m512 n64 k64", "m24 n200 k40 l2"),
    *("z8 m64 n64 k48", "z3 m64 n96 k8 l12", "y2 z5 m48 n64 k64", "z300 m16 n16 k33", "z16 m2 p40 n3 q30 k2 l30"),
)
Change = Callable[[Node, random.Random], Node]


def _padded(x: Node, rng: random.Random) -> Node:
    cut = build.slice_(x, [0] * x.rank, [max(n - 1, 1) for n in x.sizes])
    return build.pad(cut, [0] * x.rank, [n - m for n, m in zip(x.sizes, cut.sizes, strict=True)])


def _joined(x: Node, rng: random.Random) -> Node:
    axis = rng.randrange(x.rank)
    half = x.sizes[axis] // 2 or 1
    stop = [half if a == axis else n for a, n in enumerate(x.sizes)]
    start = [half if a == axis else 0 for a in range(x.rank)]
    return build.cat([build.slice_(x, [0] * x.rank, stop), build.slice_(x, start, x.sizes)], axis)


def _gathered(x: Node, rng: random.Random) -> Node:
    axis = rng.randrange(x.rank)
    return build.index_select(x, axis, build.iota([x.sizes[axis]], dtype=i64))


def _repeated(x: Node, rng: random.Random) -> Node:
    axis = rng.randrange(x.rank)
    first = build.slice_(x, [0] * x.rank, [1 if a == axis else n for a, n in enumerate(x.sizes)])
    return build.expand(first, x.sizes)


def _flat(x: Node, rng: random.Random) -> Node:
    return build.reshape(build.permute(build.reshape(x, [x.elements, 1]), [1, 0]), x.sizes)


def _odd_half(x: Node, rng: random.Random) -> Node:
    twice = build.cat([x, x], x.rank - 1)
    return build.slice_(twice, [0] * x.rank, twice.sizes, [1] * (x.rank - 1) + [2])


def _negated(x: Node, rng: random.Random) -> Node:
    return build.neg(x)


CHANGES: tuple[Change, ...] = (_padded, _joined, _gathered, _repeated, _flat, _odd_half, _negated)


def product(seed: int) -> Graph:
    """Two operands of any types and layouts, changed, cast and multiplied; a product that is cast or not."""
    rng = random.Random(seed)
    axes = {part[0]: int(part[1:]) for part in rng.choice(SIZES).split()}
    groups = {"a": "zympkl", "b": "zynqkl", "out": "zymnpq"}
    letters = {name: [x for x in group if x in axes] for name, group in groups.items()}
    for own in letters.values():
        rng.shuffle(own)
    types = [t for t in DTYPES.values() if t.name != "bool"]
    multiplied = rng.choice(types)
    stored = [rng.choice([t for t in DTYPES.values() if multiplied.holds(t)] + [multiplied] * 3) for _ in range(2)]
    inputs: list[InputSpec] = []
    orders: list[list[int]] = []
    for name, dtype in zip("ab", stored, strict=True):
        sizes = [axes[x] for x in letters[name]]
        order = list(range(len(sizes)))
        if rng.random() < 0.5:
            rng.shuffle(order)
        orders.append([order.index(d) for d in range(len(sizes))])
        inputs.append(spec([sizes[d] for d in order], None, dtype))

    def changed(x: Node, order: list[int]) -> Node:
        x = build.permute(x, order)
        for change in rng.sample(CHANGES, rng.choice((0, 0, 1, 2))):
            x = change(x, rng) if x.dtype.name != "bool" else x
        return build.cast(x, multiplied)

    def compute(a: Node, b: Node) -> Node:
        labels = [list(map(ord, letters[name])) for name in ("a", "b", "out")]
        out = rng.choice([t for t in types if t.is_float == multiplied.is_float] + [multiplied] * 3)
        y = build.einsum(changed(a, orders[0]), changed(b, orders[1]), *labels, out_dtype=out)
        match rng.choice(("plain", "cast", "relu", "bias")):
            case "cast":
                return build.cast(y, rng.choice((f32, bf16, f64, i32)))
            case "relu":
                return build.maximum(y, build.full([], 0, y.dtype))
            case "bias":
                return build.add(y, y)
            case _:
                return y

    return dense_graph(inputs, compute)


def left_to_naive(graph: Graph, device: Device) -> list[str]:
    """Heavy contractions of the unfused plan and of the predicted one, whose segments nothing but `naive` computes."""
    ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)
    prepared = prepare(graph, split_tasks(device), offers=ALTERNATIVES, takes=ledger.acceptor.shares)
    found: list[str] = []

    def look(kind: str, candidate: Candidate) -> None:
        if ledger.model.fastest(candidate) == "naive":
            found.extend(f"{kind}: {n}" for n in candidate.segment.cone if is_heavy(n))

    unfused = unfused_segments(prepared.graph, ledger)
    assert unfused
    for candidate in unfused:
        look("unfused", candidate)
    plan = tune(graph, device, Budget(0), Forgetful(), None)
    heavy = {position for position, node in enumerate(graph.nodes) if is_heavy(node)}
    found += [f"plan: {s.schedule}" for s in plan.steps if s.family == "naive" and heavy & set(s.nodes)]
    return found


@pytest.mark.soak
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.name or d.target)
def test_no_heavy_product_is_left_to_naive(device: Device) -> None:
    count = SEEDS if device.target == "cpu" else SEEDS // 6
    heavy, left = 0, list[str]()
    for seed in range(count):
        graph = product(seed)
        heavy += any(map(is_heavy, graph.nodes))
        left += [f"seed {seed}: {line}" for line in left_to_naive(graph, device)]
    assert not left, "\n".join(left)
    assert heavy > 0.9 * count
