"""Extras that this installation lacks, and how to install them: a line each, as `serve` says at its start."""

from collections.abc import Iterator
from importlib.util import find_spec

from codegen.hardware.gpus import GPUS


def missing_extras() -> Iterator[str]:
    """ "No pages without Jinja2: pip install 'fuseplan[dashboard]'"."""
    install = "pip install 'fuseplan[dashboard]'"
    if find_spec("jinja2") is None:
        yield f"No pages without Jinja2: {install}"
    elif find_spec("pygraphviz") is None:
        yield f"No pictures of graphs without pygraphviz: {install}"
    if find_spec("cupy") is None:
        yield (
            f"No plans for GPUs, here or predicted ({', '.join(GPUS)}), without CuPy: "
            "pip install 'fuseplan[cuda13]' (or cuda12)"
        )
