"""Children start quickly: one that compiles loads no library, one that times kernels on the CPU no records."""

import subprocess
import sys

import pytest

from codegen.sandbox.isolation import PACKAGES

PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); import {module}; print(*sys.modules)"


@pytest.mark.parametrize(
    ("module", "without"),
    [
        ("codegen.child.cpu_compiler", {"numpy", "pydantic", "asyncio"}),
        ("codegen.child.cpu_bench", {"pydantic", "sqlalchemy", "asyncio", "ssl"}),
    ],
)
def test_a_child_loads_what_it_needs(module: str, without: set[str]) -> None:
    command = [sys.executable, "-I", "-c", PROGRAM.format(module=module), str(PACKAGES)]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert not without & set(loaded)
