"""`fuseplan trials export`: trials as studies of Optuna's, which optuna-dashboard opens."""

from collections.abc import Iterator
from typing import Annotated

import typer

from codegen.families import FAMILIES
from fusion_ir.errors import FormatError
from fusion_ir.keys.graph_key import graph_key
from fusion_ir.text.printing import parse_graph
from service.cli.device_targets import is_of_target
from service.cli.errors import bad_input
from service.cli.graph_argument import read_graph
from service.cli.graph_or_plan import load_subject
from service.cli.options import Db, Format, Json, Shapes, Target
from service.cli.terminal import print_json, say
from service.settings import load
from service.wording.formatting import count
from tuning_db.devices import StoredDevice
from tuning_db.engine import shown
from tuning_db.store import Store

MOST = 1_000_000  # segments of a family

Storage = Annotated[
    str, typer.Option("--optuna", metavar="URL", help="Storage to write to, as sqlite:///studies.db; made if missing.")
]
Of = Annotated[
    str | None,
    typer.Argument(metavar="GRAPH|PLAN_KEY", help="A graph, or the key of a plan; everything where it is left out."),
]


def export_trials(
    optuna_: Storage,
    subject: Of = None,
    target: Target = None,
    db: Db = None,
    format_: Format = None,
    shapes: Shapes = None,
    json: Json = False,
) -> None:
    """Write trials to a storage of Optuna's: a study for each segment, kernel family and class of devices.

    Failed trials have their reasons as user attributes, those that a race stopped are pruned. Studies that an earlier
    export wrote are replaced. Look at them with: optuna-dashboard URL
    """
    from scheduler.tuning.study_export import StorageError, export_studies, open_storage  # noqa: PLC0415  Optuna

    written: list[dict[str, object]] = []
    with Store(load({"db": db}).db) as store:
        try:
            storage = open_storage(optuna_)
            for key, stored in _places(store, subject, target, format_, shapes):
                text = store.segments.segment(key)
                rows = [t.measurement for t in store.trials.trials(key, stored.class_key)]
                try:
                    segment = parse_graph(text or "").graph
                except FormatError:  # of another version
                    continue
                studies = export_studies(storage, segment, key, stored.device, rows)
                written += [{"study": s.name, "trials": s.trials, "device": stored.device.name} for s in studies]
        except StorageError as error:
            raise bad_input(f"--optuna: {error}") from error
        place = store.place
    if json:
        print_json({"studies": written})
    elif not written:
        say(f"Nothing to write: no schedules were tried on that, as far as {place} knows.")
    else:
        trials = sum(int(str(row["trials"])) for row in written)
        studies = f"{len(written):,} {'study' if len(written) == 1 else 'studies'} with {count(trials, 'trial')}"
        say(f"Wrote {studies}. Look at them with: optuna-dashboard {shown(optuna_)}")


def _places(
    store: Store, subject: str | None, target: str | None, format_: str | None, shapes: str | None
) -> Iterator[tuple[str, StoredDevice]]:
    """Segments that something was tried on, each with a device that it was tried on."""
    devices = [
        d for d in store.devices.devices() if target is None or is_of_target(target, d.device.target, d.device.name)
    ]
    found = load_subject(store, subject) if subject is not None else None
    if found is not None:
        _, plan = found
        keys = list(dict.fromkeys(step.segment_key for step in plan.steps))
    elif subject is not None:
        keys = store.segments.of(graph_key(read_graph(subject, format_, shapes).graph))
    else:
        keys = None
    for device in devices:
        tuned = dict.fromkeys(k for f in FAMILIES for k in store.segments.tuned(device.class_key, f, MOST))
        for key in tuned if keys is None else (k for k in keys if k in tuned):
            yield key, device
