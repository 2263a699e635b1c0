"""Optimistic costs, the least bytes and products of a segment: never above its traffic, nor above its prediction."""

import pytest

from benchmarks.corpus import CASES
from codegen.families import FAMILIES
from fusion_ir.core.extent import dense_strides, shape_of
from fusion_ir.core.graph import Graph, InputSpec, OutputSpec
from fusion_ir.dtype import bf16, f32
from fusion_ir.ops import make, make_input
from fusion_ir.records import Ceilings, Device
from scheduler.cost.optimistic import OptimisticCost
from scheduler.cost.traffic import traffic_of
from scheduler.interfaces import Forgetful
from scheduler.rewrites.prepare import prepare
from scheduler.rewrites.rules import ALTERNATIVES
from scheduler.rewrites.rules.split_reduction import split_tasks
from scheduler.segments.atom_cuts import cut
from scheduler.segments.atoms import Atoms, atoms_of
from scheduler.segments.enumeration import Candidates, find_candidates
from scheduler.segments.segment import extract
from scheduler.tuning.trials import Ledger
from testing.random_graphs import Seeded, any_graph
from testing.rule_graphs import rule_graph
from tests.support.devices import CPU_DEVICE, CUDA_DEVICE
from tests.support.whole import WHOLE, in_turn, some

# Memory so slow that bytes count beside launches in tensors of a few elements, the smaller level no faster.
SLOW = Ceilings(copy_gbps=((4096, 2e-3), (0, 3e-3)), read_gbps=((4096, 3e-3), (0, 2e-3)), launch_us=2.0, fma_gflops=1.0)
DEVICES = [device.model_copy(update={"ceilings": SLOW}) for device in (CPU_DEVICE, CUDA_DEVICE)]


def searched(graph: Graph, device: Device) -> tuple[Ledger, Atoms, Candidates]:
    ledger = Ledger(device, FAMILIES, Forgetful(), None, 0)
    prepared = prepare(graph, split_tasks(device), offers=ALTERNATIVES)
    atoms = cut(prepared.graph, ledger.acceptor.computable, alternatives=prepared.alternatives)
    return ledger, atoms, find_candidates(atoms, lambda piece: ledger.acceptor.ask(atoms, piece))


@pytest.mark.soak
@pytest.mark.parametrize("device", DEVICES, ids=lambda d: d.target)
def test_never_more_than_the_traffic(device: Device) -> None:
    graphs = [any_graph(Seeded(seed), steps=30) for seed in some(range(60), 8, device.target)]
    names = ("rope_mistral_nemo", "rope_phi_3_backward", "batch_norm_backward", "causal_softmax", "cross_entropy")
    graphs += [CASES[name].instance("bf16", CASES[name].small[0]).graph for name in in_turn(names, 1, device.target)]
    graphs += [rule_graph(Seeded(seed), (bf16, f32)[seed % 2]) for seed in some(range(10), 3, device.target)]
    all_ = exact = multiplied = 0
    for number, graph in enumerate(graphs):
        ledger, atoms, found = searched(graph, device)
        least, predictions, bounds = OptimisticCost(atoms), ledger.model.predictions, ledger.model.bounds
        for members, candidate in list(found.accepted.items())[:300]:
            at_least = least.traffic(members)
            (bytes_, products, *_), traffic = at_least, traffic_of(candidate.segment.graph)
            assert traffic.written_bytes <= bytes_ <= traffic.bytes, (number, members)
            assert sum(made for _, made in products) <= traffic.made_operations
            for estimate in (predictions, bounds):
                least_us, seeming_us = estimate.least_us(at_least), estimate.seeming_us(candidate)
                assert least_us <= seeming_us <= estimate.us(candidate), (number, members)
            assert at_least.refusing.isdisjoint(candidate.families), (number, members)
            all_, exact = all_ + 1, exact + (bytes_ == traffic.bytes)
            multiplied += bool(products)
    assert all_ > len(graphs) * 1000 // 75
    assert exact > (0.7 if WHOLE else 0.6) * all_, "it would tell nothing apart; of those drawn 0.65 in the worst case"
    assert multiplied > len(graphs) * 2


def test_what_a_slice_drops_need_not_be_read() -> None:
    spec = InputSpec(shape_of((8, 16)), f32, (16, 1))
    x = make_input(0, spec)
    exp = make("exp", [x])
    part = make("slice", [exp], {"start": (0, 0), "stop": (8, 4), "step": (1, 1)})
    neg = make("neg", [part])
    atoms = atoms_of(Graph((spec,), (OutputSpec(neg, dense_strides(neg.sizes)),)))
    assert [n.op for n in atoms.nodes] == ["exp", "neg"]
    least = OptimisticCost(atoms)
    assert least.traffic(atoms.piece(0b01)).bytes == 4 * (128 + 128)
    assert least.traffic(atoms.piece(0b10)).bytes == 4 * (32 + 32)
    assert least.traffic(atoms.piece(0b11)).bytes == 4 * 32, (
        "only that it writes is sure: a sum of its parts would read more"
    )
    assert traffic_of(extract(atoms, atoms.piece(0b11)).graph).bytes == 4 * (32 + 32)
