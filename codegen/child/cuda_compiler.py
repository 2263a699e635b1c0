"""Child process that runs NVRTC. It takes no GPU, but CuPy's bindings."""

import importlib
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from codegen.child.serve import Channel, limit_cpu, serve


@lru_cache(maxsize=1)
def _nvrtc() -> Any:
    """CuPy's bindings of NVRTC. Raises ImportError."""
    return importlib.import_module("cupy.cuda").nvrtc


def version(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Version of NVRTC, or the problem with it."""
    try:
        major, minor = _nvrtc().getVersion()
    except Exception as e:  # an import of CuPy fails in as many ways as there are broken installations
        return {"problem": f"{type(e).__name__}: {e}"[:300], "version": ""}
    return {"problem": "", "version": f"NVRTC {major}.{minor}"}


def compile_unit(message: dict[str, Any], channel: Channel) -> dict[str, Any]:
    """Compiles `source` with `flags`; the cubin goes to `file`."""
    limit_cpu(2 * message["seconds"])
    nvrtc = _nvrtc()
    program = nvrtc.createProgram(message["source"], "unit.cu", [], [])
    try:
        nvrtc.compileProgram(program, [*message["flags"], *(f"-I{folder}" for folder in _cuda_headers())])
        Path(message["file"]).write_bytes(nvrtc.getCUBIN(program))
    except nvrtc.NVRTCError as e:
        return {"ok": False, "log": f"{nvrtc.getProgramLog(program)}\n{e}"}
    return {"ok": True, "log": nvrtc.getProgramLog(program)}


@lru_cache(maxsize=1)
def _cuda_headers() -> tuple[str, ...]:
    """Folders of the CUDA headers: the wheels' own, else those of a toolkit."""
    try:
        packages = list(importlib.import_module("nvidia").__path__)
    except ImportError:
        packages = []
    found = [folder for package in packages for folder in sorted(Path(package).glob("*/include"))]
    if "CUDA_PATH" in os.environ:
        found.append(Path(os.environ["CUDA_PATH"], "include"))
    return tuple(
        str(folder) for folder in found if (folder / "cuda_runtime.h").exists() or (folder / "cuda_fp16.h").exists()
    )


if __name__ == "__main__":
    serve({"version": version, "compile": compile_unit})
