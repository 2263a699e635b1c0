"""`serve`: the HTTP server in this process, the workers in processes of their own, both stopped together."""

import ipaddress
import logging
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import uvicorn

from codegen.sandbox import isolation
from service.api.context import Context
from service.app import create_app
from service.connections import BoundedProtocol
from service.jobs import worker_name, worker_token
from service.process import logs, standard_output
from service.settings import Settings, environment
from tuning_db.errors import DatabaseError
from tuning_db.store import Store

log = logging.getLogger("fuseplan.server")

# A worker that ends by itself is started again, the later the more often it did; one that lived long starts afresh.
RESTART_SECONDS = (0.5, 2.0, 5.0, 15.0, 60.0)
LONG_LIFE_SECONDS = 300.0
STOP_SECONDS = 10.0
WORKER = tuple(isolation.command("service.worker"))


class ServeError(Exception):
    """The server cannot start; the message says why and what to do."""


def serve(settings: Settings, announce: Callable[[str], None] = print) -> None:
    """Runs until SIGINT or SIGTERM. Calls `announce` with the address once requests are answered.

    Raises ServeError (address not loopback though no `allowed_hosts` are named, or taken), DatabaseError, CacheError,
    SigningKeyError.
    """
    logs.configure(settings.log_level)
    with _socket(settings) as listener:
        host, port = listener.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        app = create_app(settings)
        config = uvicorn.Config(
            app,
            # uvloop takes the connections that wait one in a turn of the loop: among 100 busy clients a new one waited
            # 2.3 to 7.2 s for its first answer, with asyncio 0.06 to 0.4 s.
            loop="asyncio",
            http=BoundedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=5,
            timeout_keep_alive=30,
        )
        context = app.state.context
        with _terminating(), Supervisor(settings):
            _Server(config, lambda: announce(address), context).run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says when it has started, and tells streams when it ends."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None], context: Context) -> None:
        super().__init__(config)
        self._announce, self._context = started, context

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._context.stopping = True
        super().handle_exit(sig, frame)


def is_loopback(host: str) -> bool:
    """Whether `host` is an address of this machine only: localhost, 127.0.0.0/8 or ::1."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    """Whether `host` is an IP address: no name, which may be another one tomorrow, and not nothing, which is all."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_address(settings: Settings) -> None:
    """Raises ServeError for an address that others could reach, unless somebody says by which names they may."""
    if is_loopback(settings.host):
        return
    if not settings.allowed_hosts or not _is_address(settings.host):
        raise ServeError(
            f"refusing to listen on {settings.host}: there is no authentication, so only loopback addresses are taken "
            "(127.0.0.1, ::1, localhost); to reach the service from elsewhere, forward the port, as with ssh -L; "
            "in a container, whose host publishes the port on loopback, any IP address, with the setting allowed_hosts"
        )
    log.warning("listening on %s: whoever reaches this address may do everything", settings.host)


def _socket(settings: Settings) -> socket.socket:
    """The listening socket. Raises ServeError."""
    _check_address(settings)
    host = "127.0.0.1" if settings.host == "localhost" else settings.host
    # asyncio turns Nagle's algorithm off only where a socket names its protocol: with it, every answer on a connection
    # that is kept waited 40 ms for the acknowledgement of its own head.
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, proto=socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, settings.port))
    except OSError as error:
        listener.close()
        raise ServeError(
            f"cannot listen on {host}:{settings.port}: {error.strerror}; choose another --port, 0 takes a free one"
        ) from error
    return listener


@contextmanager
def _terminating() -> Iterator[None]:
    """Within the block SIGTERM ends the process by SystemExit, so that workers are stopped on the way out.

    uvicorn handles the signal first, and raises it again when it is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def exit_(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    before = signal.signal(signal.SIGTERM, exit_)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Supervisor:
    """Keeps `settings.workers` worker processes running between `__enter__` and `__exit__`."""

    def __init__(self, settings: Settings, command: Sequence[str] = WORKER) -> None:
        self._settings = settings
        self._command = (*command, "--parent", str(os.getpid()))
        self._environment = {**os.environ, **environment(settings)}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, args=(i,), name=f"worker-{i}") for i in range(settings.workers)
        ]

    def __enter__(self) -> "Supervisor":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, index: int) -> None:
        """One worker after another, until the end."""
        failures = 0
        while not self._stopping.is_set():
            started = time.monotonic()
            token = worker_token()
            # A session of its own: an interrupt typed at the terminal reaches the server, which then stops the worker.
            child = subprocess.Popen(
                (*self._command, "--token", token),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=standard_output.STDERR,
                start_new_session=True,
            )
            while child.poll() is None and not self._stopping.wait(0.2):
                continue
            if child.returncode is None:
                _stop(child)
                return
            # What it died of is most likely what it did: that waits, and this worker goes on with the rest at once.
            lost = self._give_back(worker_name(child.pid, token))
            failures = 0 if lost or time.monotonic() - started > LONG_LIFE_SECONDS else failures + 1
            delay = RESTART_SECONDS[min(failures, len(RESTART_SECONDS)) - 1] if failures else 0.0
            log.warning("worker %d ended with code %d; starting another in %g s", index, child.returncode, delay)
            self._stopping.wait(delay)

    def _give_back(self, owner: str) -> bool:
        """Whether a worker that is dead held an operation, which waits for another worker now, or has failed."""
        try:
            with Store(self._settings.db) as store:
                lost = store.queue.abandon(owner)
        except DatabaseError as error:  # its lease runs out
            log.error("%s", error)
            return False
        for operation in lost:
            log.warning("operation %s lost its worker in attempt %d", operation.id, operation.attempt)
        return bool(lost)


def _stop(child: "subprocess.Popen[bytes]") -> None:
    """SIGTERM, then after STOP_SECONDS SIGKILL to all of its session."""
    child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("worker %d did not stop within %g s; killing it", child.pid, STOP_SECONDS)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
