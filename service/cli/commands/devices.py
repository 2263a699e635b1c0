"""`fuseplan devices`: what this machine can plan for, what it was measured to reach, and what is out of service."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from codegen.devices.ceilings import MEASURING
from codegen.devices.detection import DeviceError, detect
from codegen.devices.quarantine import DeviceQuarantined, Quarantine, Quarantines
from codegen.hardware.gpus import GPUS, specified
from codegen.sandbox.object_cache import ObjectCache
from fusion_ir.records import Device
from scheduler.cost.lower_bound import product_gflops
from service.cli.errors import bad_input
from service.cli.fitted_tables import Cell, Column, Fitted, TableLayout
from service.cli.options import Cache, Json, Target
from service.cli.terminal import err, print_json, say, show
from service.settings import load
from service.wording.formatting import NONE, count, duration, significant, size
from tuning_db.store import Store

Release = Annotated[
    str | None,
    typer.Option("--release", metavar="NAME", help="Put a device into service again: its key, name or target."),
]


def devices(target: Target = None, cache: Cache = None, release: Release = None, json: Json = False) -> None:
    """The devices of this machine with their measured ceilings (measured now, where they were not before), and those
    that plans can be predicted for, by their data sheets.

    A device that failed to run a kernel known to be right is out of service, for all who share the cache folder, until
    --release.
    """
    settings = load({"cache": cache, "target": target})
    with Store(settings.db) as store:
        objects = ObjectCache(settings.cache, store.seal())
    quarantines = Quarantines(objects)
    if release is not None:
        _release(quarantines, release, json)
        return
    found: list[tuple[str, Device]] = []
    missing: dict[str, str] = {}
    for name in ("cpu", "cuda") if target is None else (target,):
        try:
            found.append((name, detect(name, objects, on_measuring=partial(say, MEASURING))))
        except DeviceError as error:
            if target is not None:
                raise
            missing[name] = str(error)
    if json:
        out_of_service = {q.device_key: _fact(q) for q in quarantines.all()}
        records = {d.class_key: {"target": n, **_record(d)} for n, d in found}
        absent = {name: asdict(gpu) for name, gpu in GPUS.items()} if target is None else {}
        facts = {"devices": records, "missing": missing, "quarantined": out_of_service, "predicted_only": absent}
        print_json(facts)
        return
    if found:
        show(_table(found))
    if target is None:
        say("predicted only, by --target: the vendor's peaks, and assumed (~) what kernels would reach of them")
        show(_table([(name, specified(name, "")) for name in GPUS]))
    for name, reason in missing.items():
        err().print(f"no {name}: {reason}", markup=False)
    for fact in quarantines.all():
        say(str(DeviceQuarantined(fact)))


def _release(quarantines: Quarantines, name: str, json: bool) -> None:
    """Releases every device with this key, name or target. Raises CommandError where there is none."""
    found = [q for q in quarantines.all() if name in (q.device_key, q.name, q.device_key.partition("-")[0])]
    if not found:
        known = ", ".join(q.device_key for q in quarantines.all()) or "none is"
        raise bad_input(f"--release: {name} is not out of service ({known})")
    for fact in found:
        quarantines.release(fact.device_key)
    if json:
        print_json({"released": [q.device_key for q in found]})
    else:
        say("\n".join(f"{q.name} ({q.device_key}) is in service again" for q in found))


def _fact(quarantine: Quarantine) -> dict[str, Any]:
    return quarantine.model_dump(mode="json", exclude={"device_key"})


def _record(device: Device) -> dict[str, Any]:
    record = device.model_dump(mode="json")
    record.pop("target")
    return record


def _table(found: list[tuple[str, Device]]) -> Fitted:
    """A line for each device; where it is narrow, its architecture and units stand below its name."""
    numbers = (
        Column("cache", right=True, rank=2),
        Column("memory", right=True, rank=3),
        Column("copy\nGB/s", right=True),
        Column("read\nGB/s", right=True),
        Column("f32\nGFLOP/s", right=True),
        Column("bf16\nGFLOP/s", right=True, rank=4),
        Column("launch", right=True, rank=1),
    )
    wide: list[Sequence[Cell]] = []
    narrow: list[Sequence[Cell]] = []
    for name, device in found:
        ceilings = device.ceilings
        measured = (NONE,) * 5
        if ceilings is not None:
            copy, read = ceilings.copy_gbps[-1][1], ceilings.read_gbps[-1][1]
            about = "~" if device.origin == "specified" else ""
            measured = (
                about + significant(copy),
                significant(read),
                significant(ceilings.fma_gflops),
                NONE if (bf16 := product_gflops(device).get("bf16")) is None else significant(bf16),
                about + duration(ceilings.launch_us),
            )
        cells = (size(device.cache_bytes), size(device.memory_bytes), *measured)
        wide.append((name, device.name, device.arch, str(device.units), *cells))
        narrow.append((name, f"{device.name}\n{device.arch}, {count(device.units, 'unit')}", *cells))
    target = Column("target")
    device = Column("device", least=18)
    return Fitted(
        TableLayout((target, device, Column("arch"), Column("units", right=True), *numbers), wide),
        TableLayout((target, device, *numbers), narrow),
    )
