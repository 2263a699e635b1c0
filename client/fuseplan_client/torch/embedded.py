"""A server of this process's own, where Fuseplan is installed beside the client: `fuseplan serve` on a free loopback
port."""

import os
import re
import subprocess
import sys
import threading
from importlib.util import find_spec

STARTING_S = 60.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
COMMAND = ("-m", "service", "serve", "--host", "127.0.0.1", "--port", "0", "--with-parent")
MARKS = ("fusion_ir", "scheduler", "service")  # packages of Fuseplan

_lock = threading.Lock()
_server: "_Server | None" = None


class NoServer(RuntimeError):
    """No server is named, and none can be started here; says what to do."""


class _Server:
    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process, self.address, self.owner = process, address, os.getpid()

    @property
    def is_up(self) -> bool:
        """Whether it runs, as far as the process that started it can tell; children of its fork take it for up."""
        return self.owner != os.getpid() or self.process.poll() is None


def embedded_server() -> str:
    """The address of the server of this process, which is started at the first call and ends with the process. Raises
    NoServer."""
    global _server
    with _lock:
        if _server is None or not _server.is_up:
            _server = _started()
        return _server.address


def is_installed() -> bool:
    """Whether Fuseplan itself is installed here."""
    return all(find_spec(name) is not None for name in MARKS)


def _started() -> _Server:
    if not is_installed():
        raise NoServer(
            "no server is named (FUSEPLAN_SERVER, or the option `server`), and Fuseplan is not installed here"
        )
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OPENBLAS_", "OMP_", "MKL_"))}
    process = subprocess.Popen(
        [sys.executable, *COMMAND],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    address: list[str] = []
    up = threading.Event()

    def read() -> None:
        """Reads all that the server says, for good: a full pipe would hold it up."""
        assert process.stderr is not None
        for line in process.stderr:
            if not up.is_set():
                said.append(line)
                if found := ADDRESS.search(line):
                    address.append(found[0])
                    up.set()
        up.set()

    threading.Thread(target=read, name="fuseplan-server", daemon=True).start()
    if not up.wait(STARTING_S) or not address:
        process.kill()
        last = "".join(said[-3:]).strip() or f"it said nothing within {STARTING_S:.0f} s"
        raise NoServer(f"`fuseplan serve` cannot be started here: {last}")
    return _Server(process, address[0])
