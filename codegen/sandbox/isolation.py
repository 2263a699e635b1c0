"""How our processes start others of ours: an interpreter that imports our code and what is installed beside it, and
nothing that somebody else may have put into a folder or a variable on the way."""

import os
import sys
from pathlib import Path

PACKAGES = Path(__file__).resolve().parents[2]

# What a child sees of the environment: no secrets, and nothing that loads code into it.
INHERITED = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)
# As `python -m MODULE ARGUMENTS` with our packages before all others. -I leaves out the working directory, the user's
# own packages with their usercustomize, and whatever PYTHON* variables name.
_RUN = (
    "import runpy, sys; packages, module, *sys.argv[1:] = sys.argv[1:]; sys.path.insert(0, packages); "
    "runpy.run_module(module, run_name='__main__', alter_sys=True)"
)


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs one of our modules."""
    return [sys.executable, "-I", "-B", "-c", _RUN, str(PACKAGES), module, *arguments]


def environment(home: Path | str) -> dict[str, str]:
    """The environment of a child: home and temporary files in a folder of its own, which has to be empty."""
    inherited = {name: os.environ[name] for name in INHERITED if name in os.environ}
    return {**inherited, "HOME": str(home), "TMPDIR": str(home)}
