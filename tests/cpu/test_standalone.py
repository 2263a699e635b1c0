"""Kernels of every family as one file: the C++ compiler takes it as its command line says, with no header of ours."""

import shutil
from pathlib import Path

import pytest

from codegen.standalone import standalone
from tests.support.devices import CPU_DEVICE
from tests.support.standalone import CPU, compiles, sources
from tests.support.whole import in_turn


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.soak
@pytest.mark.parametrize("family", in_turn(CPU, 1, "standalone"))
def test_the_compiler_takes_it(family: str, tmp_path: Path) -> None:
    compiles(standalone(sources(family, CPU_DEVICE)), CPU_DEVICE, tmp_path)
