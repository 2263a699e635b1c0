"""The room for PyTorch: loaded on request alone, importing PyTorch and the standard library alone."""

import ast
import subprocess
import sys
from pathlib import Path

ROOM = Path(__file__).resolve().parents[3] / "client" / "fuseplan_client" / "torch"


def test_the_client_alone_does_not_import_pytorch() -> None:
    program = "import fuseplan_client, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOM.parents[1], check=False).returncode == 0


def test_lowerings_export_and_partition_import_pytorch_and_the_standard_library_alone() -> None:
    files = [*(ROOM / "aten").glob("*.py"), *(ROOM / f"{name}.py" for name in "wire export partition support".split())]
    named: set[str] = set()
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                named.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                named.update(alias.name.split(".")[0] for alias in node.names)
    assert named - set(sys.stdlib_module_names) == {"torch", "fuseplan_client"}
