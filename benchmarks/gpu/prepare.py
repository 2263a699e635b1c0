"""Preparation of an entry of `make bench-gpu`, made ahead of its race in other processes: its plan and the unfused one
as bundles, its inputs, and PyTorch's functions compiled by torch.compile.

A compiled function cannot be handed over, but Inductor's caches on disk can: a worker calls the function once, with the
same cache folder, and the process that races finds the kernels compiled and tuned. Whoever times on the device, a
search, Inductor or the race, holds the device meanwhile.
"""

import atexit
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.corpus.pytorch import to_torch, torch
from benchmarks.gpu.device_turn import Turn
from benchmarks.gpu.entries import Entry, entries
from benchmarks.gpu.row import COMPILED, TUNED
from benchmarks.gpu.stage import no_gradients, placed, write_bundle
from codegen.sandbox.object_cache import ObjectCache
from codegen.workbench.workbench import Workbench
from fusion_ir.records import Device, Plan
from scheduler.budget import Budget
from scheduler.interfaces import Forgetful
from scheduler.tune import tune

MODES: Mapping[str, Mapping[str, str]] = {COMPILED: {}, TUNED: {"mode": "max-autotune-no-cudagraphs"}}
COMPILERS = 4  # of a worker's workbench
LEAST_FOR_TUNED = 90.0  # seconds left, below which max-autotune, the slowest side to compile, is left out
PLAN_FOLDER, UNFUSED_FOLDER, INPUTS_FILE = "plan", "unfused", "inputs.pt"


@dataclass(frozen=True)
class Task:
    """A worker's task for the entry of that name. what: "plans", or "peers": inputs and compiled functions."""

    entry: str
    what: Literal["plans", "peers"]


@dataclass(frozen=True)
class Told:
    """A worker's answer. modes: of torch.compile that work. waited_s: for the device."""

    notes: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    waited_s: float = 0.0


@dataclass(frozen=True)
class Settings:
    """Settings of all workers. folder: has a folder in it for each entry. end: of the run, by time.monotonic, which all
    processes of a machine share. place: of PyTorch's tensors. threads: of Inductor's compilers."""

    device: Device
    cache: Path
    folder: Path
    end: float
    budget_s: float
    seed: int
    dry: bool
    compiles: bool
    place: str
    threads: int = 1


class Preparer:
    """The work of one worker: a function of a Task."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.cache = ObjectCache(settings.cache)
        self._entries = {e.name: e for e in entries()}
        self._turn: Turn | None = None
        self._bench: Workbench | None = None  # kept: its children take seconds to start

    def __call__(self, task: Task) -> Told:
        """Does a task. Raises whatever planning raises; errors of PyTorch's compilers become notes."""
        entry = self._entries[task.entry]
        folder = entry_folder(self.settings.folder, entry)
        folder.mkdir(parents=True, exist_ok=True)
        return self._plans(entry, folder) if task.what == "plans" else self._peers(entry, folder)

    def _plans(self, entry: Entry, folder: Path) -> Told:
        """Searches for the time of the budget; waiting for the device does not count, so that a search among others
        sees as much as one alone."""
        s = self.settings
        graph = entry.case.instance(entry.dtype, sizes_of(entry, s.dry)).graph
        unfused: list[Plan] = []
        if self._bench is None:
            self._bench = Workbench(s.device, self.cache, jobs=COMPILERS)
            atexit.register(self._bench.close)
        bench, before = self._bench, self._bench.waited_seconds
        plan = tune(
            graph, s.device, Budget(s.budget_s, s.seed), Forgetful(), bench,
            clock=lambda: time.monotonic() - bench.waited_seconds, on_unfused=unfused.append,
        )  # fmt: skip
        waited = bench.waited_seconds - before
        write_bundle(plan, self.cache, folder / PLAN_FOLDER)
        for other in unfused:
            write_bundle(other, self.cache, folder / UNFUSED_FOLDER)
        return Told(waited_s=round(waited, 1))

    def _peers(self, entry: Entry, folder: Path) -> Told:
        s = self.settings
        sizes = sizes_of(entry, s.dry)
        arrays = entry.case.instance(entry.dtype, sizes).sample(s.seed)
        tensors = [to_torch(a) for a in arrays]
        torch.save(tensors, folder / INPUTS_FILE)
        if not s.compiles:
            return Told()
        if self._turn is None:
            self._turn = Turn(self.cache, s.device)
            self._turn.over_inductor(s.threads)
        before = self._turn.waited_seconds
        inputs = tuple(placed(t, s.place) for t in tensors)
        peer = entry.case.peer(sizes)
        notes: list[str] = []
        modes: list[str] = []
        with no_gradients():
            for name in MODES:
                if name == TUNED and s.end - time.monotonic() < LEAST_FOR_TUNED:
                    notes.append(f"{TUNED}: left out for time")
                    continue
                try:
                    compiled(peer, name)(*inputs)
                    modes.append(name)
                except Exception as e:  # whatever a compiler raises: the others can still be measured
                    notes.append(f"{name}: {type(e).__name__}: {(str(e).strip().splitlines() or [''])[0][:200]}")
        del inputs
        torch.compiler.reset()
        if s.place == "cuda":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        return Told(tuple(notes), tuple(modes), round(self._turn.waited_seconds - before, 1))


def compiled(peer: Callable[..., Any], mode: str) -> Callable[..., Any]:
    """PyTorch's function in a mode of torch.compile, the same in workers and in the race: its caches go by it."""
    return torch.compile(peer, fullgraph=True, dynamic=False, **MODES[mode])


def sizes_of(entry: Entry, dry: bool) -> Mapping[str, int]:
    """Sizes of the entry in the benchmark, or with `dry` tiny ones to try the benchmark out."""
    return entry.case.small[-1] if dry else entry.case.sizes


def entry_folder(folder: Path, entry: Entry) -> Path:
    """The folder in which a worker hands the entry over."""
    return folder / entry.name.replace(" ", "-")


def forget(folder: Path, entry: Entry) -> None:
    """Removes what was handed over: inputs of the whole corpus are many gigabytes."""
    shutil.rmtree(entry_folder(folder, entry), ignore_errors=True)
