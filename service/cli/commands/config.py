"""`fuseplan config show`: every setting, its value, and where the value comes from."""

import os
from dataclasses import replace

from rich.text import Text

from service.cli.fitted_tables import Column, Fitted, TableLayout
from service.cli.options import Json
from service.cli.terminal import print_json
from service.cli.terminal import show as display
from service.settings import config_path, describe
from tuning_db.engine import shown


def show(json: Json = False) -> None:
    """Every setting in force: a flag wins over FUSEPLAN_*, that over the TOML file, that over the default."""
    settings = [replace(s, value=shown(s.value)) if s.name == "db" else s for s in describe()]
    if json:
        print_json({s.name: {"value": s.value, "origin": s.origin, "variable": s.variable} for s in settings})
        return
    columns = (
        Column("setting"),
        Column("value", least=14),
        Column("from", least=11),
        Column("meaning", least=24, rank=1),
    )
    table = Fitted(TableLayout(columns, [(s.name, str(s.value), s.origin, s.help) for s in settings]))
    display(table, Text(f"\nFlags are --name, variables FUSEPLAN_NAME; the file is {config_path(os.environ)}"))
