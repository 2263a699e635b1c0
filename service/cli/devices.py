"""`fuseplan devices`: what this machine can plan for, and what it was measured to reach."""

from typing import Any

from rich import box
from rich.table import Table

from codegen.devices import DeviceError, detect
from codegen.object_cache import ObjectCache
from fusion_ir.records import Device
from service.cli.options import Cache, Json, Target
from service.cli.terminal import err, print_json, show
from service.formatting import duration, significant, size
from service.settings import load


def devices(target: Target = None, cache: Cache = None, json: Json = False) -> None:
    """The devices of this machine with their measured ceilings (measured now, where they were not before)."""
    settings = load({"cache": cache, "target": target})
    objects = ObjectCache(settings.cache)
    found: list[tuple[str, Device]] = []
    missing: dict[str, str] = {}
    for name in ("cpu", "cuda") if target is None else (target,):
        try:
            found.append((name, detect(name, objects)))
        except DeviceError as error:
            if target is not None:
                raise
            missing[name] = str(error)
    if json:
        print_json({"devices": {d.class_key: {"target": n, **_record(d)} for n, d in found}, "missing": missing})
        return
    if found:
        show(_table(found))
    for name, reason in missing.items():
        err().print(f"no {name}: {reason}", markup=False)


def _record(device: Device) -> dict[str, Any]:
    record = device.model_dump(mode="json")
    record.pop("target")
    return record


def _table(found: list[tuple[str, Device]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold")
    for column in ("target", "device", "arch"):
        table.add_column(column)
    for column in ("units", "cache", "memory", "copy GB/s", "read GB/s", "f32 GFLOP/s", "launch"):
        table.add_column(column, justify="right")
    for name, device in found:
        ceilings = device.ceilings
        measured = ("–",) * 4
        if ceilings is not None:
            copy, read = ceilings.copy_gbps[-1][1], ceilings.read_gbps[-1][1]
            measured = (
                significant(copy),
                significant(read),
                significant(ceilings.fma_gflops),
                duration(ceilings.launch_us),
            )
        table.add_row(
            name,
            device.name,
            device.arch,
            str(device.units),
            size(device.cache_bytes),
            size(device.memory_bytes),
            *measured,
        )
    return table
