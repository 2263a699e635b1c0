"""`fuseplan serve`: the HTTP service with its workers."""

import os
from typing import Annotated

import typer

from service.cli.options import Cache, Db, Target
from service.cli.terminal import err
from service.process.parent import end_with
from service.server import serve as run_server
from service.settings import load
from service.wording.extras import missing_extras
from tuning_db.engine import shown

Host = Annotated[str | None, typer.Option(help="Address to listen on; of loopback, unless allowed_hosts is set.")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="TCP port; 0 takes a free one.")]
Workers = Annotated[int | None, typer.Option(min=0, max=64, help="Worker processes.")]
WithParent = Annotated[bool, typer.Option("--with-parent", help="End with the process that started the server.")]
LogLevel = Annotated[str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")]


def serve(
    host: Host = None,
    port: Port = None,
    db: Db = None,
    cache: Cache = None,
    target: Target = None,
    workers: Workers = None,
    log_level: LogLevel = None,
    with_parent: WithParent = False,
) -> None:
    """Run the service on 127.0.0.1:8080: HTTP API, dashboard, and workers in processes of their own.

    Ctrl-C or SIGTERM stops it: requests are answered, workers end, and the exit code is 0.
    """
    flags = {
        "host": host,
        "port": port,
        "db": db,
        "cache": cache,
        "target": target,
        "workers": workers,
        "log_level": log_level,
    }
    settings = load(flags)
    is_up = False
    if with_parent:
        end_with(os.getppid())

    def announce(address: str) -> None:
        nonlocal is_up
        is_up = True
        where = f"API: {address}/openapi.json; database: {shown(settings.db)}"
        err().print(f"Fuseplan is at {address}  ({where}). Ctrl-C stops it.", markup=False)
        for line in missing_extras():
            err().print(line, markup=False, soft_wrap=True)

    try:
        run_server(settings, announce)
    except KeyboardInterrupt:  # which uvicorn raises once it has ended as it was asked to
        if not is_up:
            raise
