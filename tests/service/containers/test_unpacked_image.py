"""Images as they will be, where none can be built: docker/install.sh in a Debian of its own, service and worker in it.

`make soak` sets FUSEPLAN_UNPACK_IMAGE: it takes minutes, and packages of Debian and Python. Needs root and debootstrap.
"""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.dockerfile import stages
from tests.support.processes import within
from tests.support.service_app import wire
from tests.support.unpacked_image import UnpackedImage, missing

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.skipif("FUSEPLAN_UNPACK_IMAGE" not in os.environ, reason="takes minutes: `make soak` unpacks an image"),
]
SECONDS = 5.0  # of search
LONGEST_SECONDS = 300.0
WORKERS_ALONE = {"FUSEPLAN_WORKERS": "0"}


@pytest.fixture(scope="module")
def image() -> Iterator[UnpackedImage]:
    why = missing()
    if why:
        pytest.skip(why)
    folder = Path(tempfile.mkdtemp(prefix="fuseplan-image-"))
    try:
        made = UnpackedImage(folder / "root", folder / "volumes", folder / "log")
        made.root.mkdir()
        made.build(("system", "wheel", "cpu"))
        yield made
    finally:
        shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def status(process: int, field: str) -> str:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{field}:"))


def mounts(process: int) -> dict[str, list[str]]:
    """Options of what is mounted in a process's file system, by place."""
    lines = [line.split() for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines()]
    return {words[4]: words[5].split(",") for words in lines}


def resolved(port: int) -> dict[str, Any]:
    """The answer with the plan, asked for until there is one."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90.0, trust_env=False) as client:
        for _ in range(10):
            body = {"graph": wire(size=4096), "seconds": SECONDS}
            answer = client.post("/v1/plans:resolve", json=body, headers={"Prefer": "wait=30"})
            if answer.status_code != httpx.codes.ACCEPTED:
                assert answer.status_code == httpx.codes.OK, answer.text
                return answer.json()
    raise AssertionError("no plan came")


def test_a_service_and_a_worker_plan_in_an_unpacked_image(image: UnpackedImage, tmp_path: Path) -> None:
    service, worker = stages()["service"], stages()["worker"]
    port = free_port()
    settings = {"FUSEPLAN_PORT": str(port), **WORKERS_ALONE}
    logs = tmp_path / "service.log", tmp_path / "worker.log"
    with image.running(service, settings, logs[0]) as serving, image.running(worker, {}, logs[1]) as working:

        def healthy() -> bool:
            assert serving.poll() is None, logs[0].read_text()
            return image.run(service, service.health_command, settings).returncode == 0

        assert within(LONGEST_SECONDS, healthy), logs[0].read_text()
        for process in (serving.pid, working.pid):
            assert status(process, "Uid").split() == [service.user.partition(":")[0]] * 4
            assert (int(status(process, "CapEff"), 16), int(status(process, "CapBnd"), 16)) == (0, 0)
            assert status(process, "NoNewPrivs") == "1"
            assert "ro" in mounts(process)["/"]
            assert {"rw", "noexec"} <= set(mounts(process)["/tmp"])

        first = resolved(port)
        assert first["state"] == "measured", logs[1].read_text()
        assert resolved(port)["cache"] == "hit"
        page = httpx.get(f"http://127.0.0.1:{port}/plans/{first['plan_key']}", trust_env=False, timeout=60.0)
        assert "<svg" in page.text, "Graphviz came with the Python packages"
        doctor = image.run(service, ["fuseplan", "doctor"], settings)
        assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert (serving.returncode, working.returncode) == (0, 0), [log.read_text() for log in logs]
    assert "Traceback" not in logs[0].read_text() + logs[1].read_text()


def test_an_image_has_neither_pip_nor_sources(image: UnpackedImage) -> None:
    """Nothing that installs, and nothing that was only there to build."""
    worker = stages()["worker"]
    for module in ("pip", "setuptools", "hatchling"):
        done = image.run(worker, ["python", "-c", f"import {module}"], {})
        assert "ModuleNotFoundError" in done.stderr, module
    assert [path for path in ("source", "dist", "run/install.sh") if (image.root / path).exists()] == []
