"""One model in a process of its own: its plans, whether they agree, and a race of three sides."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from fuseplan_client.torch.agreement import disagreement
from fuseplan_client.torch.backend import Backend
from fuseplan_client.torch.slot import Slot
from torch import Tensor

from benchmarks.models.zoo import Model, make
from benchmarks.racing import paired_ratio, race

JUDGED_CALLS = 16  # after which a plan was judged
SIDES = ("eager", "inductor", "fuseplan")
MOST_OF_THE_GAIN = 0.95


@dataclass(frozen=True)
class GroupRow:
    """A group of ops that a plan was asked for: its state in the end, and why there is none where there is none."""

    label: str
    state: str
    reason: str
    ops: int
    plan_us: float | None
    replaced_us: float | None
    kernels: int | None = None


@dataclass(frozen=True)
class Row:
    """The figures of a model. us: medians. over: by side, its time over ours in the same rounds, with a 95 %
    interval. problem: why there is nothing. first_call_s: of ours. useful_s, most_s: until plans were there by which
    groups took less time than before, and 95 % of what they took less in the end. plans_s: until all were there.
    inductor_s: its first call."""

    model: str
    size: int
    dtype: str
    threads: int
    seconds: float
    problem: str = ""
    disagreement: str = ""
    error: float | None = None
    eager_error: float | None = None
    us: dict[str, float] = field(default_factory=dict[str, float])
    over: dict[str, tuple[float, float, float]] = field(default_factory=dict[str, tuple[float, float, float]])
    groups: Sequence[GroupRow] = ()
    first_call_s: float | None = None
    useful_s: float | None = None
    most_s: float | None = None
    plans_s: float | None = None
    inductor_s: float | None = None

    @property
    def speedup(self) -> float | None:
        """The better of PyTorch's sides over ours, as whichever the ratios are lower to."""
        ratios = [self.over[name][0] for name in ("eager", "inductor") if name in self.over]
        return min(ratios, default=None)


def measure(
    name: str,
    size: int,
    dtype: str,
    threads: int,
    *,
    device: str,
    server: str | None,
    seconds: float,
    rounds: int,
    race_s: float,
) -> Row:
    """Compiles the model by both back ends, waits for its plans, checks them and times all sides in turns. device:
    "cpu", or "cuda", whose steps are waited for."""
    torch.set_num_threads(threads)
    torch._dynamo.config.recompile_limit = 64
    model = make(name, size, dtype, device)
    backend = Backend(server=server, seconds=seconds)
    ours = torch.compile(model.compiled, backend=backend, dynamic=False)
    asked, start = time.monotonic(), time.perf_counter()
    model.step(ours)
    first_call_s = time.perf_counter() - start
    patience = 60 + (seconds + 30) * max(1, len(backend.groups))
    done = backend.wait(patience)
    plans_s = time.perf_counter() - start
    while done and not backend.is_settled:  # plans are judged on live calls, which may ask for others
        for _ in range(JUDGED_CALLS):
            model.step(ours)
        done = backend.wait(patience)
    model.reset()
    found = [t.clone() for t in model.step(ours)]
    model.reset()
    expected = [t.clone() for t in model.step(model.compiled)]
    problem = next(
        (f"{i}: {p}" for i, (a, b) in enumerate(zip(found, expected, strict=True)) if (p := disagreement(a, b))), ""
    )
    error, eager_error = _errors(name, size, device, found, expected)
    start = time.perf_counter()
    inductor = torch.compile(model.compiled, backend="inductor", dynamic=False)
    model.step(inductor)
    inductor_s = time.perf_counter() - start
    alone = torch.compile(model.compiled, backend="eager", dynamic=False)  # what `torch.compile` itself takes
    model.step(alone)
    compiled = {"eager": model.compiled, "dynamo": alone, "inductor": inductor, "fuseplan": ours}
    calls: dict[str, Callable[[], object]] = {
        side: partial(_stepped, model, call, device) for side, call in compiled.items()
    }
    samples = race(calls, rounds, 0, seconds=race_s)
    ratios = {side: paired_ratio(samples[side], samples["fuseplan"]) for side in ("eager", "inductor")}
    return Row(
        name,
        size,
        dtype,
        threads,
        seconds,
        "" if done else f"plans were not there after {patience:.0f} s",
        problem,
        error,
        eager_error,
        {side: round(c.median_us, 1) for side, c in samples.items()},
        {side: (round(r.median, 3), round(r.low, 3), round(r.high, 3)) for side, r in ratios.items()},
        [_group(g.label, s) for g in backend.groups for s in g.slots.values()],
        round(first_call_s, 2),
        *milestones([s for g in backend.groups for s in g.slots.values()], asked),
        round(plans_s, 1),
        round(inductor_s, 2),
    )


def milestones(slots: Sequence[Slot], asked: float) -> tuple[float | None, float | None]:
    """`Row.useful_s` and `most_s`, by when plans arrived. asked: by `time.monotonic`. They were judged later: there are
    no calls while the benchmark waits for them."""
    gains = [(slot.verdicts[0].replaced_us, _taken(slot)) for slot in slots if slot.verdicts]

    def gain_us(until: float) -> float:
        return sum(before - min((us for at, us in taken if at <= until), default=before) for before, taken in gains)

    times = sorted({at for _, taken in gains for at, _ in taken})
    found = [(at, gain_us(at)) for at in times]
    if not found or found[-1][1] <= 0:
        return None, None
    first = next(at for at, us in found if us > 0)
    most = next(at for at, us in found if us >= MOST_OF_THE_GAIN * found[-1][1])
    return round(first - asked, 1), round(most - asked, 1)


def _taken(slot: Slot) -> list[tuple[float, float]]:
    """When each plan that was taken was there, and what it took."""
    return [(v.arrived, v.plan_us) for v in slot.verdicts if v.is_taken]


def _stepped(model: Model, call: Callable[..., Any], device: str) -> None:
    """A step, once it is over."""
    model.step(call)
    if device != "cpu":
        torch.cuda.synchronize(device)


def _group(label: str, slot: Slot) -> GroupRow:
    return GroupRow(label, slot.state, slot.reason, slot.ops, slot.plan_us, slot.replaced_us, slot.kernels)


def _errors(
    name: str, size: int, device: str, found: Sequence[Tensor], expected: Sequence[Tensor]
) -> tuple[float | None, float | None]:
    """Largest relative errors of ours and of eager mode against the same step in f64, None where there is none."""
    model = make(name, size, "f64", device)
    try:
        model.reset()
        truth = model.step(model.compiled)
    except RuntimeError:  # ops that PyTorch has for some dtypes alone
        return None, None
    if len(truth) != len(found):
        return None, None
    return _error(found, truth), _error(expected, truth)


def _error(found: Sequence[Tensor], truth: Sequence[Tensor]) -> float:
    """The largest of the outputs: root mean square of what it is off by over that of the truth."""
    worst = 0.0
    for a, b in zip(found, truth, strict=True):
        size = b.double().square().mean().sqrt().item()
        off = (a.double() - b.double()).square().mean().sqrt().item()
        worst = max(worst, off / size if size else off)
    return worst if math.isfinite(worst) else math.inf
