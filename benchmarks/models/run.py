"""The measurement: a process for each row, results kept from run to run, a table for people.

python -m benchmarks.models [--models gpt2.eval,...] [--threads 1,2] [--dtypes f32,bf16] [--sizes 0,1] [--seconds 60]
python -m benchmarks.models --server http://127.0.0.1:8080      # else each row starts a server of its own
python -m benchmarks.models --device cuda --threads 1           # writes results/models_cuda.{json,md}
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from math import exp, log
from pathlib import Path
from typing import Any

from benchmarks.machine import RESULTS, machine

Key = tuple[str, int, str, int]
Rows = dict[tuple[str, Key], dict[str, Any]]  # by the device's name, too


def main() -> int:
    """Measures the rows that are asked for, one after the other, and writes results/models.{json,md} after each."""
    options = _options()
    if options.row:
        _print_row(options)
        return 0
    machines, rows = _kept(options.device)
    about = _machine(options.device)
    machines[about["device"]] = about
    for key in _asked(options):
        found = {**_measured(key, options), "device": about["device"]}
        rows[about["device"], key] = found
        _write(machines, rows, options.device)
        print(_line(found), flush=True)
    return 0


def _options() -> argparse.Namespace:
    from benchmarks.models.zoo import names  # noqa: PLC0415  PyTorch takes seconds to import

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(names()))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--sizes", default="0,1")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--race-seconds", type=float, default=20.0)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--server")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    return parser.parse_args()


def _asked(options: argparse.Namespace) -> list[Key]:
    threads, sizes = ([int(v) for v in text.split(",")] for text in (options.threads, options.sizes))
    dtypes, models = options.dtypes.split(","), options.models.split(",")
    return [(m, s, d, t) for m in models for d in dtypes for s in sizes for t in threads]


def _print_row(options: argparse.Namespace) -> None:
    from benchmarks.models.row import measure  # noqa: PLC0415

    name, size, dtype, threads = options.row.split(",")
    row = measure(
        name, int(size), dtype, int(threads), device=options.device, server=options.server, seconds=options.seconds,
        rounds=options.rounds, race_s=options.race_seconds,
    )  # fmt: skip
    print(json.dumps({**asdict(row), "speedup": row.speedup}))


def _measured(key: Key, options: argparse.Namespace) -> dict[str, Any]:
    """The row, from a process whose environment holds no library to less than it can do. Searches have all CPUs,
    however many threads the model has."""
    name, size, dtype, threads = key
    command = [sys.executable, "-m", "benchmarks.models", "--row", f"{name},{size},{dtype},{threads}"]
    command += ["--seconds", str(options.seconds), "--rounds", str(options.rounds)]
    command += ["--device", options.device, "--race-seconds", str(options.race_seconds)]
    command += ["--server", options.server] if options.server else []
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "OMP_", "MKL_"))}
    with tempfile.TemporaryDirectory() as folder:
        for part in ("DATA", "CACHE", "CONFIG"):
            environment[f"XDG_{part}_HOME"] = f"{folder}/{part}"
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return {"model": name, "size": size, "dtype": dtype, "threads": threads, "problem": last}
    return json.loads(done.stdout.splitlines()[-1])


def _file(device: str) -> Path:
    return RESULTS / ("models.json" if device == "cpu" else f"models_{device}.json")


def _machine(device: str) -> dict[str, str]:
    import torch  # noqa: PLC0415

    about = {**machine(), "torch": torch.__version__}
    return {**about, "device": torch.cuda.get_device_name()} if device == "cuda" else about


def _kept(device: str) -> tuple[dict[str, dict[str, str]], Rows]:
    """Facts of the machines, and the rows that were measured on them."""
    file = _file(device)
    if not file.exists():
        return {}, {}
    kept = json.loads(file.read_text())
    machines = {about["device"]: about for about in kept["machines"]}
    return machines, {(r["device"], (r["model"], r["size"], r["dtype"], r["threads"])): r for r in kept["rows"]}


def _write(machines: dict[str, dict[str, str]], rows: Rows, device: str) -> None:
    RESULTS.mkdir(exist_ok=True)
    ordered = [rows[key] for key in sorted(rows)]
    kept = {"machines": [machines[name] for name in sorted(machines)], "rows": ordered}
    _file(device).write_text(json.dumps(kept, indent=1) + "\n")
    _file(device).with_suffix(".md").write_text(report(kept["machines"], ordered))


def report(machines: Sequence[dict[str, str]], rows: Sequence[dict[str, Any]]) -> str:
    """The report, in Markdown."""
    lines = [
        '# Models by `torch.compile(backend="fuseplan")`',
        "",
        "Medians of a step in microseconds; times of eager mode and Inductor over ours in the same rounds. Dynamo:",
        f"eager mode by `torch.compile`, whose guards all back ends pay for. Search: {_seconds(rows)} for each group.",
        "Seconds until plans were there that are faster than what ran before, and until those that give 95 % of what",
        "was gained in the end (groups are searched one after the other), beside the first call by Inductor.",
        "`python -m benchmarks.models`",
    ]
    for about in machines:
        lines += ["", *table(about, [row for row in rows if row["device"] == about["device"]])]
    return "\n".join(lines) + "\n"


def table(about: dict[str, str], rows: Sequence[dict[str, Any]]) -> list[str]:
    """The lines of one machine's rows."""
    lines = [
        f"## {about['device']}",
        "",
        f"PyTorch {about['torch']}; {about['commit']}.",
        "",
        "| model | size | dtype | threads | eager | Dynamo | Inductor | ours | eager/ours | Inductor/ours "
        "| first plan, s | most, s | Inductor, s | plans | agrees |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|",
        *(_line(row) for row in rows),
    ]
    found = [row["speedup"] for row in rows if row.get("speedup")]
    if found:
        mean = exp(sum(map(log, found)) / len(found))
        better = "Geometric mean over the better of eager mode and Inductor"
        lines += ["", f"{better}: **{mean:.2f}**; {len(found)} rows; least {min(found):.2f}."]
    return lines


def _seconds(rows: Sequence[dict[str, Any]]) -> str:
    return " or ".join(f"{s:g} s" for s in sorted({row["seconds"] for row in rows if "seconds" in row}))


def _line(row: dict[str, Any]) -> str:
    head = f"| {row['model']} | {row['size']} | {row['dtype']} | {row['threads']} "
    if row.get("problem") and not row.get("us"):
        return f"{head}| {row['problem'][:120]} |"
    us, over = row["us"], row["over"]
    states = [g["state"] + (f" ({g['reason'][:60]})" if g["reason"] else "") for g in row["groups"]]
    sides = ("eager", "dynamo", "inductor", "fuseplan")
    times = " | ".join(f"{us[side]:.0f}" if side in us else "" for side in sides)
    ratios = " | ".join(f"{over[side][0]:.2f}" for side in ("eager", "inductor"))
    waits = " | ".join(f"{row[s]:.0f}" if row.get(s) is not None else "" for s in ("useful_s", "most_s", "inductor_s"))
    return f"{head}| {times} | {ratios} | {waits} | {', '.join(states)} | {row['disagreement'] or 'yes'} |"
