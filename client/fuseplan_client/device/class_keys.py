"""Keys of classes of devices: devices of one class run each other's code, and take about the same time for it."""

import hashlib
import re
from pathlib import Path

from fuseplan_client.cpu.machine import MKL, has_mkl
from fuseplan_client.device.cpu_facts import SYSTEM, architecture, cpu_features, cpu_name, cpus
from fuseplan_client.device.cuda_device import NoDevice, cuda_facts

DIGITS = 16
MOST_THREADS = 1024  # of a plan


def class_key(target: str = "cpu", *, root: Path = SYSTEM) -> str:
    """The key of a device of this machine: `device_key` in a service's answers, and what a request may ask for.

    target: "cpu", "cpu:N" for N threads at most, either with ":mkl" behind it where plans may call PyTorch's MKL,
    "cuda" or "cuda:N". The CPU's is for the CPUs that this process may use, by its affinity and its control groups:
    another process may have other ones. To ask for a GPU's begins to use the driver in this process, whose forks cannot
    use it then. root: where the files of the system are.

    Raises NoDevice where there is none, ValueError for a target that is none of these.
    """
    if (cpu := re.fullmatch(r"cpu(?::([1-9][0-9]{0,3}))?(:mkl)?", target)) is not None:
        if cpu[2] and not has_mkl():
            raise NoDevice("no PyTorch whose MKL plans could call")
        features = tuple(sorted((*cpu_features(root), *((MKL,) if cpu[2] else ()))))
        return _key("cpu", cpu_name(root), architecture(), features, min(cpus(root), int(cpu[1] or MOST_THREADS)))
    found = re.fullmatch(r"cuda(?::([0-9]{1,4}))?", target)
    if found is None:
        raise ValueError(f'expected "cpu", "cpu:N", either with ":mkl", "cuda" or "cuda:N", got {target!r}')
    facts = cuda_facts(int(found[1] or 0))
    return _key("cuda", facts.name, facts.arch, facts.libraries, facts.multiprocessors)


def _key(target: str, name: str, arch: str, features: tuple[str, ...], units: int) -> str:
    text = "|".join((target, name, arch, ",".join(features), str(units)))
    return f"{target}-{hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}"
