"""The option --sampler, apart from the others: commands that search for nothing do not load what it names."""

from typing import Annotated

import typer

from scheduler.sampler_names import SAMPLERS

Sampler = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"What steers the search for schedules: {', '.join(SAMPLERS)}, or a dotted path to a sampler for Optuna.",
    ),
]
