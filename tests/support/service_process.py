"""The server as a process of its own, on a free loopback port."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from service.settings import environment, load

ROOT = Path(__file__).parents[2]
CODE = (
    "from service.server import serve; from service.settings import load; serve(load(), lambda a: print(a, flush=True))"
)


@contextmanager
def server(folder: Path, code: str = CODE, **settings: object) -> "Iterator[tuple[subprocess.Popen[str], int]]":
    """The process and its port; it gets SIGTERM at the end of the block, whose log is in folder/log.

    code: what it runs, with a line on stdout for the address.
    """
    given = {"db": f"sqlite:///{folder / 'fuseplan.db'}", "cache": str(folder / "cache"), "port": 0, **settings}
    env = {**os.environ, **environment(load(given, env={"HOME": str(folder)})), "PYTHONPATH": str(ROOT)}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, "-c", code], env=env, text=True, stdout=subprocess.PIPE, stderr=log, cwd=folder
        ) as process,
    ):
        try:
            assert process.stdout is not None
            address = process.stdout.readline()
            match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)\n", address)
            assert match, (address, (folder / "log").read_text())
            yield process, int(match[1])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
