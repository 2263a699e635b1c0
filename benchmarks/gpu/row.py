"""The outcome of one entry of `make bench-gpu`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.racing import Contestant, Ratio

PLAN, EAGER, COMPILED, TUNED = "plan", "eager", "compile", "max-autotune"
UNFUSED, ALONE, COPY = "unfused", "product alone", "copy"


@dataclass(frozen=True)
class Row:
    """An entry's outcome. problem: why there is nothing more. moves: whether it has no products, so that memory bounds
    it. copied_us: time of copying its bytes, see `with_copies`. ratios: PyTorch's sides over the plan, the plan over
    the others. operations: of its steps. seconds: of the race and all around it; plans_s, peers_s: of preparing it
    before, in other processes; waited_s: for the device, by whom.
    """

    name: str
    topic: str
    sizes: Mapping[str, int]
    bytes: int = 0
    moves: bool = False
    problem: str = ""
    times: dict[str, Contestant] = field(default_factory=dict[str, Contestant])
    ratios: dict[str, Ratio] = field(default_factory=dict[str, Ratio])
    copied_us: float | None = None
    kernels: tuple[str, ...] = ()
    operations: float = 0.0
    bound_us: float = 0.0
    seconds: float = 0.0
    plans_s: float = 0.0
    peers_s: float = 0.0
    waited_s: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()

    @property
    def better(self) -> Ratio | None:
        """The fastest of PyTorch's sides over the plan."""
        return self._fastest(EAGER, COMPILED, TUNED)

    @property
    def better_compiled(self) -> Ratio | None:
        """The faster of torch.compile's two over the plan."""
        return self._fastest(COMPILED, TUNED)

    def _fastest(self, *sides: str) -> Ratio | None:
        known = [self.ratios[s] for s in sides if s in self.ratios]
        return min(known, key=lambda r: r.median, default=None)

    @property
    def share_of_copy(self) -> float | None:
        """Copying as many bytes over the plan: 1 is as fast as a copy."""
        return self.copied_us / self.times[PLAN].median_us if self.copied_us and PLAN in self.times else None

    @property
    def share_of_limit(self) -> float:
        """The least time that plans take as a rule over this plan's: the time of a copy of as many bytes or of cuBLAS's
        product alone, the longer of both. 1 where the plan takes no longer, or where the entry has products and their
        time alone is not known."""
        if not self.moves and ALONE not in self.ratios:
            return 1.0
        alone = 1 / self.ratios[ALONE].median if ALONE in self.ratios else None
        return min(max((s for s in (self.share_of_copy, alone) if s is not None), default=1.0), 1.0)


def read_row(fields: Mapping[str, Any]) -> Row:
    """A row as results files have it."""
    sequences = {name: tuple(fields[name]) for name in ("kernels", "notes")}
    times = {n: Contestant(t["name"], tuple(t["samples_us"])) for n, t in fields["times"].items()}
    ratios = {n: Ratio(**r) for n, r in fields["ratios"].items()}
    return Row(**{**fields, **sequences, "times": times, "ratios": ratios})


def line(row: Row) -> str:
    """A row in one line."""
    if row.problem:
        return f"{row.name}: failed: {row.problem}"
    times = ", ".join(f"{name} {t.median_us:.1f}" for name, t in row.times.items())
    best = row.better
    over = f"; {best.of} {best.median:.2f}x [{best.low:.2f}, {best.high:.2f}]" if best else ""
    copied = row.bytes / (row.copied_us or row.times[COPY].median_us) / 1e3
    rate = "" if row.moves else f"; {row.operations / row.times[PLAN].median_us / 1e6:.0f} TFLOP/s"
    waited = sum(row.waited_s.values())
    took = f"; {row.seconds:.1f} s after {row.plans_s:.0f} and {row.peers_s:.0f} s, {waited:.1f} s of them waiting"
    return f"{row.name}: {times} us{over}; {row.share_of_copy or 0:.0%} of a copy's {copied:.0f} GB/s{rate}{took}"
