"""Studies of Optuna's for others to look at: the trial log of a segment, family by family, written to a storage."""

from collections.abc import Sequence
from dataclasses import dataclass

import optuna
from optuna.storages import BaseStorage, RDBStorage

from codegen.families import FAMILIES
from codegen.schedule import Choices, schedule_values
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device, Measurement
from scheduler.tuning.schedule_space import Value
from scheduler.tuning.study import Encoding, make_study
from scheduler.tuning.trial_log import relative_times, variant_of

MADE_BY = "made_by"  # a user attribute: studies that have it, and no others, are written anew
OURS = "fuseplan"
KEY_DIGITS = 12  # of a segment's key, in a study's name


class StorageError(Exception):
    """A storage cannot be used; the message says why."""


@dataclass(frozen=True)
class Exported:
    """A study that was written. trials: how many, failed and pruned ones among them."""

    name: str
    trials: int


def open_storage(url: str) -> BaseStorage:
    """Optuna's storage at an address of SQLAlchemy's, made where there is none. Raises StorageError."""
    try:
        return RDBStorage(url)
    except Exception as e:  # SQLAlchemy's, its driver's, or Optuna's own
        raise StorageError(str(e).partition("\n")[0]) from e


def export_studies(
    storage: BaseStorage, segment: Graph, segment_key: str, device: Device, rows: Sequence[Measurement]
) -> list[Exported]:
    """Writes a study for each family that schedules of a segment were tried of on one class of devices.

    rows: every try, in order. Values are microseconds, brought to one race: those of other races are scaled by a
    candidate that was in both. Failed tries have no value, those that a race stopped are pruned. A study of the same
    name that was written before is replaced. Raises StorageError where somebody else's has the name.
    """
    times = relative_times(rows)
    last = {variant_of(m): m for m in rows}
    written: list[Exported] = []
    for family in dict.fromkeys(m.family for m in rows if m.family in FAMILIES):
        tried = {schedule: m for (name, schedule), m in last.items() if name == family and schedule_values(schedule)}
        fields = {tuple(schedule_values(schedule)) for schedule in tried}
        if len(fields) != 1:  # a family without a choice, or schedules of several versions
            continue
        encoding = Encoding(family, _choices(FAMILIES[family].choices(segment, device), tried))
        name = f"{family} {segment_key[:KEY_DIGITS]} {device.target} {device.class_key[-KEY_DIGITS:]}"
        _make_room(storage, name)
        study = make_study(
            encoding, {schedule: times.get((family, schedule)) for schedule in tried}, tried, name, storage
        )
        for key, value in {
            MADE_BY: OURS,
            "segment": segment_key,
            "family": family,
            "device": device.class_key,
            "device_name": device.name,
            "unit": "us",
        }.items():
            study.set_user_attr(key, value)
        written.append(Exported(name, len(tried)))
    return written


def _choices(listed: Choices, tried: dict[str, Measurement]) -> Choices:
    """The values of each field: those that the family lists, and others that were tried."""
    found: dict[str, dict[str, Value]] = {}
    for schedule in tried:
        for name, text in schedule_values(schedule).items():
            values = found.setdefault(name, {str(v): v for v in listed.get(name, ())})
            values.setdefault(text, int(text) if text.isdecimal() else text)
    return {name: tuple(values.values()) for name, values in found.items()}


def _make_room(storage: BaseStorage, name: str) -> None:
    """Removes a study that was written before. Raises StorageError."""
    if name not in optuna.get_all_study_names(storage):
        return
    before = optuna.load_study(study_name=name, storage=storage)
    if before.user_attrs.get(MADE_BY) != OURS:
        raise StorageError(f"the storage has a study {name!r} that is not one of Fuseplan's")
    optuna.delete_study(study_name=name, storage=storage)
