"""The seed cases: the issues of other compilers that Fuseplan is measured by (docs/seeds.md), with figures.

    python -m benchmarks.seeds [CASE ...] [--target cpu|cuda|h200] [--budget S] [--rounds N] [--anew]

prints each case's page, and writes benchmarks/results/seeds.{json,md} and its plots. Cases: see `CASES`. A run goes on
where an earlier one on the same target, or this one's last case, left off; --anew forgets what these cases found
before. Figures for a GPU that is not there are predictions, and say so.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import RESULTS, machine
from benchmarks.seeds import chain as seeds_chain
from benchmarks.seeds import operands as seeds_operands
from benchmarks.seeds import rope as seeds_rope
from benchmarks.seeds import sweep as seeds_sweep
from benchmarks.seeds import widths as seeds_widths
from benchmarks.seeds.place import Place, place
from codegen.devices.detection import DeviceError

ALLOCATION = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "17179869184", "MALLOC_TOP_PAD_": "1073741824"}
TARGET, BUDGET_S, ROUNDS = "cpu", 5.0, 30

Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """rows: what is found, one after another, without the rows of an earlier run that it is given. page: their text;
    its second argument says whether anything was timed. plot: the text of an SVG file, None for no plot."""

    title: str
    rows: Callable[[Place, Sequence[Row]], Iterator[Row]]
    page: Callable[[Sequence[Row], bool], list[str]]
    plot: Callable[[Sequence[Row], str], str] | None = None


CASES: Mapping[str, Case] = {
    "rope": Case(
        "Rotary embedding of Mistral: one kernel, or the cut at its product", seeds_rope.rows, seeds_rope.page
    ),
    "sweep": Case("Small products: which family wins", seeds_sweep.rows, seeds_sweep.page, seeds_sweep.plot),
    "widths": Case("Vector widths of what epilogues read", seeds_widths.rows, seeds_widths.page),
    "operands": Case("Operands with axes of their own", seeds_operands.rows, seeds_operands.page),
    "chain": Case("The tail of an attention block: P (Y A + b) C", seeds_chain.rows, seeds_chain.page),
}


def main() -> int:
    """Runs the cases that are named, all by default. 3 without the device."""
    options = _options()
    if options.target == "cpu" and any(os.environ.get(name) != value for name, value in ALLOCATION.items()):
        # The policy is read when a process starts; without it, page faults on fresh outputs cost more than kernels.
        os.execve(
            sys.executable, [sys.executable, "-m", "benchmarks.seeds", *sys.argv[1:]], {**os.environ, **ALLOCATION}
        )
    stem: Path = options.out
    content = _read(stem.with_suffix(".json"))
    try:
        with place(options.target, options.cache, options.budget, options.rounds, options.seed) as here:
            for name in options.case or CASES:
                _run(name, here, content, stem, options.anew)
    except DeviceError as e:
        print(f"seeds: {e}", file=sys.stderr)
        return 3
    return 0


def _run(name: str, here: Place, content: dict[str, Any], stem: Path, anew: bool) -> None:
    """Adds what a case finds to `content`, and writes it after every row."""
    facts = {**machine(), "device": f"{here.device.name}, {here.device.arch}", "measured": here.is_there}
    if here.target == "cpu":
        facts["device"] = machine()["device"]
    known = content.setdefault(here.target, {}).get(name, {"rows": []})
    found: list[Row] = [] if anew or known.get("facts", {}).get("device") != facts["device"] else known["rows"]
    busiest = known.get("facts", {}).get("load", 0.0) if found else 0.0
    for row in CASES[name].rows(here, found):
        found = [*found, row]
        busiest = facts["load"] = max(busiest, round(os.getloadavg()[0], 1))
        print(f"{name}: {json.dumps(row)[:200]}", file=sys.stderr, flush=True)
        content[here.target][name] = {"facts": facts, "rows": found}
        _write(content, stem)
    content[here.target][name] = {"facts": facts, "rows": found}
    _write(content, stem)
    print("\n".join(_section(name, here.target, content[here.target][name])))


def _write(content: Mapping[str, Any], stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")
    stem.with_suffix(".md").write_text(page(content))
    for target, cases in content.items():
        for name, case in cases.items():
            plot = CASES[name].plot
            if plot is not None and case["rows"]:
                where = "" if target == TARGET else f"_{target}"
                path = stem.with_name(f"{stem.name}_{name}{where}.svg")
                path.write_text(plot(case["rows"], _title(name, case)))


def page(content: Mapping[str, Any]) -> str:
    """The page of all that was found."""
    lines = ["# The seed cases", "", "What they are and what is to be seen: [docs/seeds.md](../../docs/seeds.md)."]
    for name in CASES:
        for target, cases in content.items():
            if name in cases:
                lines += ["", *_section(name, target, cases[name])]
    return "\n".join(lines) + "\n"


def _section(name: str, target: str, case: Mapping[str, Any]) -> list[str]:
    return [
        f"## {_title(name, case)}",
        "",
        f"`python -m benchmarks.seeds {name}{'' if target == TARGET else f' --target {target}'}` at "
        f"{case['facts']['commit']}{_load(case['facts'])}",
        "",
        *CASES[name].page(case["rows"], case["facts"]["measured"]),
    ]


def _load(facts: Mapping[str, Any]) -> str:
    """The machine's load average as a clause: under load, ratios of one race hold, times do not."""
    return f"; load average up to {facts['load']:g}" if facts["measured"] and "load" in facts else ""


def _title(name: str, case: Mapping[str, Any]) -> str:
    word = "" if case["facts"]["measured"] else ", predicted"
    return f"{CASES[name].title}: {case['facts']['device']}{word}"


def _read(file: Path) -> dict[str, Any]:
    """Results of earlier runs; empty where there were none."""
    return json.loads(file.read_text()) if file.exists() else {}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seeds", description="The seed cases, with figures.")
    parser.add_argument("case", nargs="*", help=f"all of {', '.join(CASES)} by default")
    parser.add_argument("--target", default=TARGET, help="cpu, cuda, or a GPU to predict for: h200")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS", help="of search per graph")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each race beside PyTorch")
    parser.add_argument("--anew", action="store_true", help="forget what these cases found before")
    parser.add_argument("--cache", metavar="FOLDER", help="of compiled kernels, kept; by default a temporary one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "seeds", metavar="STEM", help="of the files to write")
    return parser.parse_args()
