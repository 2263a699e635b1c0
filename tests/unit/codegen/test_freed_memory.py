"""Children keep the memory of arrays that they let go of."""

import subprocess
import sys

import pytest

ARRAYS, BYTES = 50, 4 << 20

SCRIPT = f"""
import resource, sys
import numpy as np
from codegen.child.serve import keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
def fill():
    x = np.ones({BYTES}, np.uint8)
    y = np.ones({BYTES}, np.uint8)
    del x, y
fill()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ARRAYS}):
    fill()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: str) -> int:
    """Pages that a process touched for the first time, filling arrays one after the other."""
    made = subprocess.run([sys.executable, "-c", SCRIPT, keep], capture_output=True, text=True, check=True, timeout=60)
    return int(made.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="how the C library gives memory back")
def test_arrays_take_no_new_pages_again_and_again() -> None:
    kept, given_back = faults("keep"), faults("give back")
    assert kept < ARRAYS, f"{kept} faults, {given_back} as the C library does it by itself"
