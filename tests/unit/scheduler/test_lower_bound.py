"""Lower bounds: never above what a machine with the measured ceilings could do, and never below the least of them."""

import random
from itertools import combinations

import pytest

from codegen.hardware.gpus import GPUS, LEAST_LAUNCH_US, specified
from fusion_ir import building as build
from fusion_ir.dtype import f32
from fusion_ir.records import Ceilings, Device
from scheduler.cost.lower_bound import bound_by, bound_terms_us, least_bound_us, lower_bound_us, memory_us
from scheduler.cost.roofline_cpu import predicted_us
from scheduler.cost.traffic import Traffic, traffic_of
from tests.support.products import dense_graph
from tests.unit.scheduler.fakes import CEILINGS, DEVICE

Rates = tuple[float, float]  # GB/s read and written at once


class Machine:
    """Main memory of which some rates of reads and writes at once are possible, all that they leave unused, and any of
    them one after the other."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.rates = [(rng.uniform(0, 100), rng.uniform(0, 100)) for _ in range(rng.randint(1, 6))]
        self.rates += [(rng.uniform(50, 100), 0.0), (0.0, rng.uniform(50, 200))]

    def fastest_ns(self, read: float, written: float) -> float:
        """The least time for so many bytes: an optimum has two kinds of rates at the most."""
        return min(_time(read, written, *pair) for pair in combinations([*self.rates, self.rates[0]], 2))

    def ceilings(self) -> Ceilings:
        """Ceilings as measured on this machine, in GB/s: copies, reads alone and writes alone at their fastest."""

        def gbps(reads: int, writes: int) -> float:
            return (reads + writes) / self.fastest_ns(reads, writes)

        return Ceilings(
            copy_gbps=((1000, 1e4), (0, gbps(1, 1))),
            read_gbps=((1000, 1e4), (0, gbps(1, 0))),
            launch_us=0.0,
            fma_gflops=1.0,
            write_gbps=gbps(0, 1),
        )


def _time(read: float, written: float, one: Rates, other: Rates) -> float:
    """With these rates alone, one after the other."""
    times = [max(read / r if r else read * 1e12, written / w if w else written * 1e12) for r, w in (one, other)]
    both = one[0] * other[1] - one[1] * other[0]
    if both:
        first, second = (read * other[1] - written * other[0]) / both, (one[0] * written - one[1] * read) / both
        if first >= 0 <= second:
            times.append(first + second)
    return min(times)


@pytest.mark.parametrize("seed", range(200))
def test_no_mix_of_reads_and_writes_beats_its_bound(seed: int) -> None:
    machine = Machine(seed)
    ceilings = machine.ceilings()
    for share in range(21):
        read, written = 100_000 * (20 - share), 100_000 * share
        fastest_us, bound_us = machine.fastest_ns(read, written) / 1e3, memory_us(read, written, ceilings)
        assert bound_us <= fastest_us * (1 + 1e-9)
        assert bound_us >= 0.6 * fastest_us, "of every mix something is known"


def test_copies_reads_and_writes_take_what_was_measured() -> None:
    machine = Machine(3)
    ceilings = machine.ceilings()
    for read, written in ((1_000_000, 1_000_000), (1_000_000, 0), (0, 1_000_000)):
        expected = pytest.approx(machine.fastest_ns(read, written) / 1e3)
        assert memory_us(read, written, ceilings) == expected


def test_a_copy_measured_at_a_bad_moment_bounds_nothing() -> None:
    ceilings = Machine(3).ceilings()
    slow = ceilings.model_copy(update={"copy_gbps": (*ceilings.copy_gbps[:-1], (0, 1.0))})
    assert ceilings.write_gbps is not None
    both_us = 1e3 / ceilings.read_gbps[-1][1] + 1e3 / ceilings.write_gbps
    assert memory_us(1_000_000, 1_000_000, slow) == pytest.approx(both_us)
    assert memory_us(0, 1_000_000, slow) == pytest.approx(1e3 / ceilings.write_gbps)


@pytest.mark.sweep(0.3)
@pytest.mark.parametrize("seed", range(100))
def test_the_least_is_a_bound_of_all(seed: int) -> None:
    """`least_bound_us` of n bytes is at most the bound of any mix of n or more bytes read and written, at any level of
    memory, and some mix comes near it."""
    device = DEVICE.model_copy(update={"ceilings": Machine(seed).ceilings()})
    rng = random.Random(seed)
    for _ in range(30):
        bytes_ = rng.choice((10, 999, 1001, 5_000_000))
        moved = bytes_ + rng.choice((0, 1, bytes_))
        read = rng.randint(0, moved)
        bound_us = lower_bound_us(Traffic(read, moved - read, 0, 0), device)
        assert least_bound_us(bytes_, device) <= bound_us * (1 + 1e-9)
    bounds = [lower_bound_us(Traffic(n * 1000, (5000 - n) * 1000, 0, 0), device) for n in range(5001)]
    assert least_bound_us(5_000_000, device) == pytest.approx(min(bounds), rel=2e-3)


def test_a_cache_measured_slower_than_main_memory_bounds_nothing() -> None:
    update = {"copy_gbps": ((1000, 30.0), (0, 50.0)), "read_gbps": ((1000, 40.0), (0, 50.0)), "write_gbps": 50.0}
    ceilings = CEILINGS.model_copy(update=update)
    assert memory_us(400, 400, ceilings) == pytest.approx(800 / 50e3)
    faster = ceilings.model_copy(update={"read_gbps": ((1000, 100.0), (0, 50.0))})
    assert memory_us(400, 400, faster) == pytest.approx(800 / 100e3)


def test_without_writes_the_best_bandwidth_counts() -> None:
    """Devices measured before there was a rate of writes keep their keys: their ceilings are stored without one."""
    assert memory_us(30_000_000, 30_000_000, CEILINGS) == memory_us(0, 60_000_000, CEILINGS) == pytest.approx(1000.0)
    assert "write_gbps" not in CEILINGS.model_dump_json()
    ceilings = Machine(0).ceilings()
    assert Ceilings.model_validate_json(ceilings.model_dump_json()) == ceilings


def test_terms() -> None:
    """50 GB/s copies, 60 GB/s reads, 2 us a launch, 100 GFLOP/s."""
    terms = bound_terms_us(Traffic(30_000_000, 30_000_000, 1e9, 1e7), DEVICE)
    assert terms == pytest.approx({"launch": 2.0, "bytes": 1000.0, "arithmetic": 100.0, "products": 0.0})
    blank: Device = DEVICE.model_copy(update={"ceilings": None})
    assert (bound_terms_us(Traffic(1, 1, 0, 0), blank), lower_bound_us(Traffic(1, 1, 0, 0), blank)) == ({}, 0.0)


NARROW = CEILINGS.model_copy(update={"product_gflops": (("bf16", 200.0), ("f16", 100.0))})
WITH_PRODUCTS = DEVICE.model_copy(update={"ceilings": NARROW})


def test_products_of_narrow_operands_take_what_their_units_take() -> None:
    """200 GFLOP/s of bf16, 100 of f16, nothing known of i8."""
    traffic = Traffic(1, 1, 3e9, 0.0, products=(("bf16", 1e9), ("f16", 1e9), ("i8", 1e9)))
    assert bound_terms_us(traffic, WITH_PRODUCTS)["products"] == pytest.approx(5_000 + 10_000)
    assert lower_bound_us(traffic, DEVICE) == 2.0, "ceilings of before do not say"


def test_products_of_f32_may_take_what_tiles_and_vectors_take_at_once() -> None:
    """A sixth of the 600 GFLOP/s of bf16, and the 100 of vectors."""
    ceilings = CEILINGS.model_copy(update={"product_gflops": (("bf16", 600.0),)})
    with_tiles = DEVICE.model_copy(update={"ceilings": ceilings, "features": ("amx_bf16", "avx512_bf16")})
    without = with_tiles.model_copy(update={"features": ("avx512_bf16",)})
    graph = dense_graph([(64, 64), (64, 64)], lambda a, b: build.exp(build.matmul(a, build.transpose(b))), f32)
    traffic = traffic_of(graph)
    made_us, others_us = 2 * 64**3 / 1e3, (traffic.vector_operations - 2 * 64**3) / 1e5
    assert others_us > 0
    terms = bound_terms_us(traffic, with_tiles)
    assert (terms["products"], terms["arithmetic"]) == pytest.approx((made_us / 200.0, others_us))
    terms = bound_terms_us(traffic, without)
    assert (terms["products"], terms["arithmetic"]) == pytest.approx((0.0, made_us / 100.0 + others_us))
    faster_us, slower_us = (predicted_us(traffic, "aten", device, ["aten"]) for device in (with_tiles, without))
    assert faster_us < slower_us


@pytest.mark.parametrize(
    ("traffic", "expected"),
    [
        (Traffic(10, 10, 0, 0), "launch"),
        (Traffic(30_000_000, 0, 0, 0), "memory"),
        (Traffic(1 << 18, 0, 0, 0), "cache"),
        (Traffic(1, 1, 1e9, 1e9), "arithmetic"),
        (Traffic(1, 1, 3e9, 0, products=(("bf16", 1e9), ("f16", 1e9))), "f16 products"),
        (Traffic(1, 1, 3e9, 0, products=(("bf16", 3e9), ("f16", 1e9))), "bf16 products"),
    ],
)
def test_what_is_at_its_limit(traffic: Traffic, expected: str) -> None:
    cached = {"copy_gbps": ((1 << 20, 50.0), (0, 50.0)), "read_gbps": ((1 << 20, 60.0), (0, 60.0))}
    device = DEVICE.model_copy(update={"ceilings": NARROW.model_copy(update=cached)})
    assert bound_by(traffic, device) == expected
    assert bound_by(traffic, device.model_copy(update={"ceilings": None})) is None


@pytest.mark.parametrize("target", GPUS)
def test_a_gpu_that_is_not_there_has_a_launch_to_make(target: str) -> None:
    """No kernel ends before it was started: 6 MiB would come out of an H200's L2 in 0.4 us."""
    device = specified(target, "")
    small = Traffic(1 << 12, 1 << 12, 0, 0)
    assert (lower_bound_us(small, device), bound_by(small, device)) == (LEAST_LAUNCH_US, "launch")
    assert least_bound_us(1, device) == LEAST_LAUNCH_US
    assert device.ceilings is not None
    assert device.ceilings.launch_us >= LEAST_LAUNCH_US
