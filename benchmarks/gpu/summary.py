"""Figures over the rows of `make bench-gpu`: plans against PyTorch, a copy, cuBLAS alone and unfused plans."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

from benchmarks.gpu.row import ALONE, COMPILED, COPY, EAGER, PLAN, TUNED, UNFUSED, Row
from benchmarks.racing import Ratio

COPY_AIM = 0.9  # of copy bandwidth, for what memory bounds
UNFUSED_LIMIT = 1.01  # of the unfused plan's time
SIDES = (PLAN, EAGER, COMPILED, TUNED, UNFUSED, ALONE, COPY)


@dataclass(frozen=True)
class Mean:
    """A geometric mean of PyTorch's times over the plan's; 0 of none."""

    count: int
    ratio: float

    def __str__(self) -> str:
        return f"{self.ratio:.2f} of {self.count}" if self.count else "none"


@dataclass(frozen=True)
class Figures:
    """better: means of the best of all of PyTorch's sides; compiled: of torch.compile's two; at_limits: `compiled` if
    every plan took only `Row.share_of_limit` of its time. topics: (better, compiled) by topic. Losses and shares by
    entry, the worst first. copy_shares: of entries without products. alone: products alone over the plan."""

    better: Mean
    compiled: Mean
    at_limits: Mean
    topics: Mapping[str, tuple[Mean, Mean]]
    slower: Mapping[str, Ratio]
    slower_than_compiled: Mapping[str, Ratio]
    copy_shares: Mapping[str, float]
    copy_median: float
    below_copy_aim: Mapping[str, float]
    alone: Mapping[str, float]
    unfused_known: int
    slower_than_unfused: Mapping[str, Ratio]
    failed: Mapping[str, str]
    left_out: tuple[str, ...]


def figures(rows: Sequence[Row], left_out: Sequence[str]) -> Figures:
    """All figures. Rows that failed count nowhere but among the failed."""
    held = [r for r in rows if not r.problem]
    better, compiled = _known(held, lambda r: r.better), _known(held, lambda r: r.better_compiled)
    topics = {
        topic: (_mean(better[r.name].median for r in of if r.name in better),
                _mean(compiled[r.name].median for r in of if r.name in compiled))
        for topic in dict.fromkeys(r.topic for r in held)
        for of in [[r for r in held if r.topic == topic]]
    }  # fmt: skip
    shares = _ascending({r.name: s for r in held if r.moves and (s := r.share_of_copy) is not None})
    unfused = _known(held, lambda r: r.ratios.get(UNFUSED))
    return Figures(
        better=_mean(r.median for r in better.values()),
        compiled=_mean(r.median for r in compiled.values()),
        at_limits=_mean(compiled[r.name].median / r.share_of_limit for r in held if r.name in compiled),
        topics=topics,
        slower=_worst({n: r for n, r in better.items() if r.median < 1}),
        slower_than_compiled=_worst({n: r for n, r in compiled.items() if r.median < 1}),
        copy_shares=shares,
        copy_median=median(shares.values()) if shares else 0.0,
        below_copy_aim={n: s for n, s in shares.items() if s < COPY_AIM},
        alone=_ascending({r.name: 1 / r.ratios[ALONE].median for r in held if ALONE in r.ratios}),
        unfused_known=len(unfused),
        slower_than_unfused=_worst({n: r for n, r in unfused.items() if r.median > UNFUSED_LIMIT}, descending=True),
        failed={r.name: r.problem for r in rows if r.problem},
        left_out=tuple(left_out),
    )


def summary(found: Figures) -> str:
    """The figures as lines of text, losses and what was left out included."""
    lines = [
        f"PyTorch over the plan, geometric means: better of eager and compiled {found.better}; "
        f"better of torch.compile's two {found.compiled}",
        f"the latter if no plan took longer than a copy of its bytes, or cuBLAS's product alone: {found.at_limits}",
    ]
    for topic, (better, compiled) in found.topics.items():
        lines.append(f"  {topic}: {better}; compiled {compiled}")
    lines += [
        f"slower than the best of PyTorch: {_ratios(found.slower)}",
        f"slower than the better torch.compile: {_ratios(found.slower_than_compiled)}",
        f"without products: median {found.copy_median:.0%} of copy bandwidth, {len(found.below_copy_aim)} of "
        f"{len(found.copy_shares)} below {COPY_AIM:.0%}: {_shares(found.below_copy_aim)}",
        f"products, PyTorch's cuBLAS alone over the plan: {_shares(found.alone)}",
        f"slower than our own unfused plan by more than {UNFUSED_LIMIT - 1:.0%}, of {found.unfused_known} raced: "
        f"{_ratios(found.slower_than_unfused)}",
        "failed: " + ("; ".join(f"{n}: {p}" for n, p in found.failed.items()) or "none"),
        f"left out for time: {len(found.left_out)}{': ' * bool(found.left_out)}{', '.join(found.left_out)}",
    ]
    return "\n".join(lines)


def page(title: str, head: Mapping[str, str], rows: Sequence[Row], found: Figures) -> str:
    """The figures and a table of rows, in Markdown."""
    lines = [f"# {title}", "", *(f"- {line}" for line in summary(found).replace("\n  ", "\n").splitlines()), ""]
    lines += [
        f"| entry | {' | '.join(f'{s} us' for s in SIDES)} | best / plan | compiled / plan | of a copy | kernels |"
    ]
    lines += ["|---|" + "---:|" * (len(SIDES) + 4)]
    for row in (r for r in rows if not r.problem):
        times = [f"{row.times[s].median_us:.1f}" if s in row.times else "" for s in SIDES]
        ratios = [f"{r.median:.2f}" if r else "" for r in (row.better, row.better_compiled)]
        times[SIDES.index(COPY)] = f"{row.copied_us:.1f}" if row.copied_us else ""
        cells = [row.name, *times, *ratios, f"{row.share_of_copy or 0:.0%}", str(len(row.kernels))]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"- {name}: {value}" for name, value in head.items())]) + "\n"


def _known(rows: Sequence[Row], ratio: Callable[[Row], Ratio | None]) -> dict[str, Ratio]:
    return {r.name: found for r in rows if (found := ratio(r)) is not None}


def _mean(ratios: Iterable[float]) -> Mean:
    logs = [log(r) for r in ratios]
    return Mean(len(logs), exp(sum(logs) / len(logs)) if logs else 0.0)


def _ascending(values: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(values.items(), key=lambda item: item[1]))


def _worst(ratios: Mapping[str, Ratio], descending: bool = False) -> dict[str, Ratio]:
    return dict(sorted(ratios.items(), key=lambda item: item[1].median, reverse=descending))


def _ratios(ratios: Mapping[str, Ratio]) -> str:
    named = [f"{n} {r.median:.2f} ({r.over if r.of == PLAN else r.of})" for n, r in ratios.items()]
    return ", ".join(named) or "none"


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{n} {s:.0%}" for n, s in shares.items()) or "none"
