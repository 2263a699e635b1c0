"""An image without anything that builds images: a Debian in a folder, in which the Dockerfile's own steps are run by
chroot, and processes started as containers would have them."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.dockerfile import ROOT, Copy, Run, Stage, script_variables, stages

UNPACK_SECONDS = 1800.0
STOP_SECONDS = 60.0
# What a container has mounted, seen by nobody else: run by `unshare --mount`. $1 is the folder of the Debian.
MOUNTS = """
mount --bind "$1" "$1"
for place in proc sys dev; do mount --rbind "/$place" "$1/$place"; done
"""
BUILDING = (
    MOUNTS
    + """
root=$1; shift
exec chroot "$root" /bin/sh -euc "$1"
"""
)
# As compose.yaml has them: /tmp in memory, from which nothing is executed, two volumes, all else read-only.
RUNNING = (
    MOUNTS
    + """
root=$1 data=$2 cache=$3 owner=$4; shift 4
mount -t tmpfs -o noexec,nosuid,nodev,size=2g,mode=1777 tmpfs "$root/tmp"
mount --bind "$data" "$root/var/lib/fuseplan"
mount --bind "$cache" "$root/var/cache/fuseplan"
mount -o remount,bind,ro "$root"
exec chroot "$root" setpriv --reuid="${owner%:*}" --regid="${owner#*:}" --clear-groups --no-new-privs \\
  --bounding-set=-all --inh-caps=-all -- "$@"
"""
)


@dataclass(frozen=True)
class UnpackedImage:
    """`root`: the folder of the Debian; `volumes`: those of its containers; `log`: what building printed."""

    root: Path
    volumes: Path
    log: Path

    def build(self, names: Sequence[str]) -> None:
        """A minimal Debian, then the steps of these stages, in order. Raises AssertionError where one fails."""
        release = script_variables()["RELEASE"]
        debootstrap = ["debootstrap", "--variant=minbase", release, str(self.root)]
        self._print(["unshare", "--mount", "--propagation", "private", *debootstrap], dict(os.environ))
        for file in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(file, self.root / file[1:])
        for name in names:
            for step in stages()[name].steps:
                self._copy(stages()[name], step) if isinstance(step, Copy) else self._run(step)
        for folder in ("source", "dist"):  # of a stage that others only mount
            shutil.rmtree(self.root / folder)
        for place in ("var/lib/fuseplan", "var/cache/fuseplan"):  # a new volume is as the image has its place
            made, found = self.volumes / Path(place).parent.name, (self.root / place).stat()
            made.mkdir(parents=True, mode=0o700)
            os.chown(made, found.st_uid, found.st_gid)
            made.chmod(found.st_mode & 0o777)

    @contextmanager
    def running(self, stage: Stage, settings: Mapping[str, str], log: Path) -> "Iterator[subprocess.Popen[bytes]]":
        """The command of this stage's container, run as a child of this process. It gets SIGTERM at the end of the
        block."""
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._contained(stage, stage.command), env={**stage.environment, **settings}, stdout=out, stderr=out
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(
        self, stage: Stage, command: Sequence[str], settings: Mapping[str, str]
    ) -> "subprocess.CompletedProcess[str]":
        """One command in a container of this stage, to its end."""
        env = {**stage.environment, **settings}
        return subprocess.run(
            self._contained(stage, command), env=env, capture_output=True, text=True, check=False, timeout=STOP_SECONDS
        )

    def _contained(self, stage: Stage, command: Sequence[str]) -> list[str]:
        places = [str(self.root), str(self.volumes / "lib"), str(self.volumes / "cache"), stage.user]
        return [*_unshared(RUNNING), *places, *stage.entrypoint, *command]

    def _copy(self, stage: Stage, step: Copy) -> None:
        place = Path(stage.last("WORKDIR") or "/") / step.target
        target = self.root / place.relative_to("/")
        for source in step.sources:
            found = ROOT / source
            if found.is_dir():
                shutil.copytree(found, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target / found.name)

    def _run(self, step: Run) -> None:
        mounted = [mount for mount in step.mounts if mount.stage is None]
        for mount in mounted:
            shutil.copy(ROOT / mount.source, self.root / mount.target[1:])
        assert all(mount.source == mount.target for mount in step.mounts if mount.stage is not None)
        self._print([*_unshared(BUILDING), str(self.root), step.command], self._outside())
        for mount in mounted:
            (self.root / mount.target[1:]).unlink()

    def _outside(self) -> dict[str, str]:
        """Environment of build steps: this machine's variables for pip and for proxies, and certificates to trust."""
        env = {
            name: value for name, value in os.environ.items() if name.lower().endswith("_proxy") or name[:4] == "PIP_"
        }
        trusted = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
        if trusted:
            shutil.copy(trusted, self.root / "run/trusted.pem")
            env["PIP_CERT"] = "/run/trusted.pem"
        return {**env, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}

    def _print(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        with self.log.open("ab") as out:
            done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                  check=False, timeout=UNPACK_SECONDS)  # fmt: skip
        assert done.returncode == 0, self.log.read_text("utf-8", "replace")[-3000:]


def _unshared(script: str) -> list[str]:
    return ["unshare", "--mount", "--propagation", "private", "bash", "-euc", script, "container"]


def missing() -> str:
    """The tool or the right that this machine lacks to unpack an image, in words; "" where it lacks nothing."""
    if os.geteuid() != 0:
        return "only root may unpack a Debian and go into it"
    lacking = [tool for tool in ("debootstrap", "unshare", "chroot", "bash") if shutil.which(tool) is None]
    if lacking:
        return f"missing: {', '.join(lacking)} (on Debian: apt install debootstrap)"
    tried = subprocess.run([*_unshared('mount --bind "$1" "$1"'), "/tmp"], capture_output=True, text=True, check=False)
    return f"this machine lets nobody mount: {tried.stderr.strip()}" if tried.returncode else ""
