"""PyTorch's sides of a comparison: a case's function in eager mode and compiled, each in its fastest spelling."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch  # pyright: ignore[reportMissingImports]  # only make bench-cpu and make test install it

from benchmarks.corpus.case import Case, Peer

Tensors = tuple[torch.Tensor, ...]
Call = Callable[[], object]


@dataclass(frozen=True)
class Side:
    """One way in which PyTorch computes a case. problem: why there is none, else "". prepare_seconds: of compiling and
    of the first call."""

    spelling: str
    call: Call | None
    prepare_seconds: float = 0.0
    problem: str = ""


def eager(case: Case, tensors: Tensors) -> list[Side]:
    """Every spelling as it stands."""
    return [_side(name, case.peer(function=function), tensors) for name, function in _spellings(case)]


def compiled(case: Case, tensors: Tensors) -> list[Side]:
    """Every spelling through torch.compile in its default mode, for these shapes alone."""
    torch.compiler.reset()  # what earlier cases compiled would count against the limit of recompilations
    return [
        _side(name, torch.compile(case.peer(function=function), fullgraph=True, dynamic=False), tensors)
        for name, function in _spellings(case)
    ]


def _spellings(case: Case) -> Sequence[tuple[str, Peer]]:
    return [("" if i == 0 else f"spelling {i + 1}", function) for i, function in enumerate((case.torch, *case.also))]


def _side(name: str, function: Callable[..., Any], tensors: Tensors) -> Side:
    started = time.perf_counter()
    try:
        function(*tensors)
    except Exception as error:  # whatever a compiler raises: the other side can still be measured
        lines = str(error).strip().splitlines()
        return Side(name, None, time.perf_counter() - started, f"{type(error).__name__}: {lines[0] if lines else ''}")
    return Side(name, partial(function, *tensors), time.perf_counter() - started)
