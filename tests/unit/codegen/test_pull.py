"""Pulling: every op has a rule, and what views rewrite is what the interpreter reads."""

import operator

import numpy as np
import pytest

from codegen.lowering.index import Affine, Axis, Opaque
from codegen.lowering.placement import place
from codegen.lowering.pull_rules import RULES
from codegen.lowering.puller import Index, Puller
from codegen.lowering.stores import MAX_PIECES, Pulled, pull_outputs
from codegen.lowering.unify import MAX_PULLED, unify
from codegen.lowering.value import Value, cone
from codegen.lowering.write import writes_of
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16, f32, i64
from fusion_ir.ops import OPS, make, make_input
from fusion_ir.reference.interpreter import interpret
from testing.random_graphs import Maker, Seeded, whole_graph
from tests.support.whole import WHOLE, in_turn


def test_every_op_has_a_rule() -> None:
    assert RULES.keys() - {"input"} == OPS.keys()


def graph_of(inputs: list[InputSpec], *outputs: Node) -> Graph:
    return Graph(tuple(inputs), tuple(OutputSpec(n, dense_strides(n.sizes)) for n in outputs))


def evaluate(e: Affine, at: dict[Axis, int]) -> int:
    total = e.c
    for t, k in e.terms:
        if isinstance(t, Axis):
            total += k * at[t]
        else:
            assert isinstance(t, Opaque)
            v = evaluate(t.of, at)
            total += k * (min(max(v, 0), t.extent - 1) if t.is_clamp else v // t.divisor % t.extent)
    return total


def compute(v: Value, at: dict[Axis, int], inputs: list[np.ndarray]) -> object:
    """Evaluates views' values: loads, selects on index comparisons, constants."""
    if v.op == "load":
        return inputs[v.tensor][evaluate(v.offset, at)]
    if v.op == "index":
        return evaluate(v.offset, at)
    if v.op == "const":
        return v.scalar.value
    args = [compute(a, at, inputs) for a in v.args]
    ops = {"where": lambda c, a, b: a if c else b, "lt": operator.lt, "logical_not": operator.not_}
    return (ops | {"add": operator.add, "mul": operator.mul})[v.op](*args)  # add and mul come from iota


@pytest.mark.parametrize("seed", range(250))
def test_views_of_views_against_the_interpreter(seed: int) -> None:
    """Random chains of views over one integer input: every store, at every point, reads what the interpreter says."""
    m = Maker(Seeded(seed), exact=True, max_elements=300)
    spec = InputSpec(shape_of(m.sizes(1 + seed % 4)), i64, ())
    spec = InputSpec(spec.shape, i64, dense_strides(spec.sizes))
    m.inputs.append(spec)
    m.nodes.append(make_input(0, spec))
    for _ in range(5):
        m.step([m.view])
    out = m.nodes[-1]
    graph = graph_of(m.inputs, out)
    flat = np.arange(100, 100 + max(spec.span, 1))
    expected = interpret(graph, [flat[: spec.span].reshape(spec.sizes)])[0].reshape(-1)
    got = np.full(expected.size, -1)
    pulled = pull_outputs(graph)
    assert len(pulled.stores) <= MAX_PIECES + 1
    unify(pulled)
    for w in writes_of(pulled):
        axes = list(w.axes)
        for point in np.ndindex(*(a.extent for a in axes)):
            at = dict(zip(axes, point, strict=True))
            assert got[evaluate(w.offset, at)] == -1, "two stores write one element"
            got[evaluate(w.offset, at)] = compute(w.value, at, [flat])
    assert (got == expected).all()


def test_an_exact_round_trip_folds_away() -> None:
    """bf16 -> f32 -> neg -> bf16 -> f32 is one negation of the widened load."""
    spec = InputSpec(shape_of((8,)), bf16, (1,))
    x = make("cast", (make_input(0, spec),), {"dtype": f32})
    y = make("cast", (make("neg", (x,)),), {"dtype": bf16})
    graph = graph_of([spec], make("cast", (y,), {"dtype": f32}))
    (root,), _, _ = pull_outputs(graph).pull()
    assert [v.op for v in cone([root])] == ["load", "cast", "neg"]


def test_a_rounding_that_matters_stays() -> None:
    spec = InputSpec(shape_of((8,)), bf16, (1,))
    x = make("cast", (make_input(0, spec),), {"dtype": f32})
    y = make("cast", (make("mul", (x, x)),), {"dtype": bf16})
    (root,), _, _ = pull_outputs(graph_of([spec], make("cast", (y,), {"dtype": f32}))).pull()
    assert [v.op for v in cone([root])] == ["load", "cast", "mul", "cast", "cast"]


def test_a_value_that_lacks_an_axis_is_kept_outside_its_loop() -> None:
    """out[h, d] = x[h, d] * exp(f[d]): the exponentials once, not once a row."""
    inputs = [InputSpec(shape_of((64, 128)), f32, (128, 1)), InputSpec(shape_of((128,)), f32, (1,))]
    x, f = (make_input(i, spec) for i, spec in enumerate(inputs))
    e = make("broadcast_in_dim", (make("exp", (f,)),), {"shape": x.shape, "dims": (1,)})
    pulled = pull_outputs(graph_of(inputs, make("mul", (x, e))))
    unify(pulled)
    writes = writes_of(pulled)
    lane = writes[0].axes[1]
    program = place(writes, {lane: 16}, {}, keep_bytes=4096)
    (kept,) = [v for v in program.kept if v.op == "exp"]
    assert program.kept[kept].key.path == () == program.kept[kept].scope
    small = place(writes, {lane: 16}, {}, keep_bytes=256)
    assert not small.kept, "an array over the cap is computed again where it is used"


def test_outputs_whose_views_were_expressed_are_not_pulled_again_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of these outputs has an axis that is split; each split began with the first output again."""
    outputs, steps = 12, 20
    inputs = [InputSpec(shape_of((6, 12)), f32, (12, 1)) for _ in range(outputs)]
    graph = graph_of(inputs, *(_in_a_row(make_input(i, spec), steps) for i, spec in enumerate(inputs)))
    pulled: list[Node] = []
    usual = Puller.pull

    def counted(self: Puller, node: Node, index: Index) -> Value:
        pulled.append(node)
        return usual(self, node, index)

    monkeypatch.setattr(Puller, "pull", counted)
    found = pull_outputs(graph)
    assert all(len(store.axes) == 2 for store in found.stores)
    assert len(pulled) <= 2 * outputs * (steps + 3)
    found.pull()


def _in_a_row(x: Node, steps: int) -> Node:
    """Rows of `x`, turned and joined, and then so many steps."""
    x = make("reshape", (make("permute", (x,), {"dims": (1, 0)}),), {"shape": shape_of((72,))})
    for _ in range(steps):
        x = make("exp", (x,))
    return x


@pytest.mark.soak
def test_digits_are_aligned_while_that_takes_no_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each split pulls the whole graph again: of 160 nodes 79 times, for 4 s, before what was pulled was counted."""
    pulled: list[int] = []
    usual = Pulled.pull

    def counted(self: Pulled) -> object:
        found = usual(self)
        pulled.append(sum(map(len, found[1].visits.values())))
        return found

    monkeypatch.setattr(Pulled, "pull", counted)
    stopped = 0
    for seed in in_turn((0, 2, 10, 16, 22, 31, 33), 3):
        outputs = pull_outputs(whole_graph(Seeded(seed), nodes=120))
        pulled.clear()
        unify(outputs)
        assert sum(pulled) <= MAX_PULLED + 2 * max(pulled)
        stopped += sum(pulled) > MAX_PULLED
    assert stopped >= 3 or not WHOLE
