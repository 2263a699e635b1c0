"""Where results go, and what machine they were measured on."""

import os
import platform
import subprocess
from pathlib import Path

from codegen.hardware.machine import cpu_name

RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, str]:
    """The CPU, its usable cores, the system and the compiler. FUSEPLAN_COMMIT: of a copy without git."""
    return {
        "device": f"{cpu_name()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(),
        "compiler": _first_line(["c++", "--version"]),
        "commit": os.environ.get("FUSEPLAN_COMMIT") or _first_line(["git", "describe", "--always", "--dirty"]),
    }


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown ({error.__class__.__name__})"
    return done.stdout.splitlines()[0]
