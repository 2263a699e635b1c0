"""The filter that tells from atoms which segments no family takes because of their products: the families, when asked,
refuse them, too."""

import random
from collections.abc import Iterator

import pytest

from codegen.families import FAMILIES
from codegen.families.contraction_limits import is_thick, refusing
from codegen.hardware.gpus import specified
from fusion_ir import building as build
from fusion_ir.core.graph import Graph
from fusion_ir.core.node import Node
from fusion_ir.dtype import bf16
from fusion_ir.ops import OPS, OpKind
from fusion_ir.records import Device
from scheduler.bitset import bits
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.contraction_filter import ContractionFilter
from scheduler.segments.segment import extract
from scheduler.segments.segment_mask import SegmentMask
from tests.support.attention import scores, tensor
from tests.support.products import dense_graph
from tests.unit.scheduler.test_optimistic import DEVICES

MOST = 9  # atoms of a random graph: all sets of them are asked about


def _random(seed: int) -> Graph:
    """A random graph of matrix products, thin and thick, of each other and of pointwise ops, softmaxes and views."""
    rng = random.Random(seed)
    rows = rng.choice((4, 32))

    def made(x: Node, y: Node) -> tuple[Node, ...]:
        wide, square = [x], [y]
        for _ in range(rng.randint(2, 5)):
            a, b, other = rng.choice(wide), rng.choice(square), rng.choice(wide)
            match rng.choice(("matmul", "matmul", "exp", "exp of b", "add", "softmax", "turn", "attend")):
                case "matmul":
                    wide.append(build.matmul(a, b))
                case "exp":
                    wide.append(build.exp(a))
                case "exp of b":
                    square.append(build.exp(b))
                case "add":
                    wide.append(build.add(a, other))
                case "softmax":
                    wide.append(build.softmax(a))
                case "turn":
                    square.append(build.permute(b, [1, 0]))
                case _:
                    wide.append(build.matmul(build.cast(build.softmax(scores(a, b)), bf16), b))
        return (*dict.fromkeys((wide[-1], rng.choice(wide[1:] or square))),)

    return dense_graph([tensor(rows, 32), tensor(32, 32)], made)


H200 = specified("h200", "13.0")


def _pieces(*, alternatives: bool) -> Iterator[tuple[int, Atoms, SegmentMask]]:
    """Every set of atoms that can be a segment, with its seed and atoms, of random graphs of at most MOST atoms.
    alternatives: only those with atoms that some rewrite offers."""
    for seed in range(300):
        graph = _random(seed)
        if alternatives:
            prepared = prepare(graph, offers=ALTERNATIVES)
            atoms = atoms_of(prepared.graph, alternatives=prepared.alternatives)
        else:
            atoms = atoms_of(graph)
        if len(atoms) <= MOST and (not alternatives or atoms.given < len(atoms)):
            pieces = map(atoms.piece, range(1, 1 << len(atoms)))
            found = ((seed, atoms, p) for p in pieces if atoms.is_possible(p))
            yield from (f for f in found if not alternatives or f[2].members & ~atoms.givens)


@pytest.mark.parametrize("device", [*DEVICES, H200], ids=lambda d: d.name or d.target)
@pytest.mark.parametrize("alternatives", [False, True])
def test_families_refuse_what_is_kept_apart(alternatives: bool, device: Device) -> None:
    kept = 0
    for seed, atoms, piece in _pieces(alternatives=alternatives):
        if ContractionFilter(atoms, device.target).keep_apart(piece):
            graph = extract(atoms, piece).graph
            took = [f for f in FAMILIES if f != "naive" and FAMILIES[f].accepts(graph, device) is None]
            assert not took, (seed, piece)
            kept += 1
    assert kept > 100


@pytest.mark.parametrize("device", [*DEVICES, H200], ids=lambda d: d.name or d.target)
def test_families_refuse_as_ops_say(device: Device) -> None:
    said = 0
    for seed, atoms, piece in _pieces(alternatives=False):
        if any(atoms.nodes[a].op == "contract" for a in bits(piece.members)):
            graph = extract(atoms, piece).graph
            ops = frozenset(atoms.nodes[a].op for a in bits(piece.members))
            for family in refusing(ops, _computed(atoms, piece.members)):
                assert FAMILIES[family].accepts(graph, device) is not None, (seed, piece, family)
                said += 1
    assert said > 100


def _computed(atoms: Atoms, members: int) -> bool:
    contractions = [a for a in bits(members) if atoms.nodes[a].op == "contract"]
    read = bits(atoms.reads[contractions[0]] & members)
    return len(contractions) == 1 and any(OPS[atoms.nodes[a].op].kind is not OpKind.VIEW for a in read)


def test_thin_products_are_for_loops() -> None:
    x, w = tensor(4, 64), tensor(64, 64)
    (thin,) = (o.node for o in dense_graph([x, w], build.matmul).outputs)
    (thick,) = (o.node for o in dense_graph([tensor(64, 64), w], build.matmul).outputs)
    assert is_thick(thick) and not is_thick(thin)


def test_libraries_multiply_views_that_are_atoms() -> None:
    """Where a view is an atom, for lack of a kernel that sees through it, a product of it is one call all the same."""
    graph = dense_graph([tensor(64, 64), tensor(64, 64)], lambda x, w: build.matmul(x, build.permute(w, [1, 0])))
    turned = next(n for n in graph.nodes if n.op == "permute")
    atoms = atoms_of(graph, frozenset({turned}))
    piece = atoms.piece(atoms.all)
    cpu = DEVICES[0]
    assert len(atoms) == 2 and cpu.target == "cpu"
    assert FAMILIES["aten"].accepts(extract(atoms, piece).graph, cpu) is None
    assert not ContractionFilter(atoms, "cpu").keep_apart(piece)
