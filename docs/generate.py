"""Prints the reference pages from the tables that the program reads: `make docs` writes them, a test compares them."""

import ast
import re
import sys
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path

from codegen.families import FAMILIES
from fusion_ir.core.graph import Graph
from fusion_ir.ops import OPS, OpKind
from scheduler.rewrites.rules import ALTERNATIVES, RULES
from scheduler.rewrites.rules.identities import commuting
from scheduler.rewrites.rules.matrix_axes import AxesInOrder
from scheduler.rewrites.rules.narrow_operands import NARROW
from scheduler.rewrites.rules.slice_pushdown import Sinking
from scheduler.rewrites.rules.split_reduction import Tasks, split_offers, splitting
from service import errors
from service.cli.app import commands
from service.settings import describe

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PACKAGES = ("fusion_ir", "codegen", "scheduler", "tuning_db", "service", "client")
_FILES = "## Every room"
_COMMENTED = {".h", ".cuh", ".cpp", ".css", ".js"}
_HASHED = {".sh", ".yaml", ".dockerignore"}
_KINDS = {
    OpKind.POINTWISE: "Pointwise: operands of one shape",
    OpKind.VIEW: "Views: index maps, which move no data by themselves",
    OpKind.REDUCTION: "Reductions: drop the axes",
    OpKind.SCAN: "Scans",
    OpKind.GATHER: "Gathers",
    OpKind.SCATTER: "Scatters",
    OpKind.CONTRACT: "Contraction",
    OpKind.RANDOM: "Random numbers",
}

_ROUNDING = """
## What is rounded

Every tensor is rounded to its dtype, and some alternatives have other tensors in the middle. Each of these is a sum
of products of what the graph multiplies, and no more of them are rounded; so the error against the real numbers is
about that of the graph as given. `benchmarks/results/rounding.md` has it measured, by rule.

A plan with such a rewrite says so (`rounds_elsewhere`). Where plans are timed, it is checked first, and its outputs may
be apart from the interpreter's by what the graph's own roundings make of them
(`fusion_ir/accuracy/displaced_rounding.py`, `fusion_ir/accuracy/tolerance.py`); beyond that it is discarded. Where
nothing ran, a reason in the plan says that nobody checked.

**Range.** bf16 has the range of f32. f16 ends at 65,504 and has its full precision down to 0.00006, and a tensor that
the graph does not have may leave that range where none of the graph's comes near: y z of (x y) z = x (y z), if y and z
are large and x is small. No structure of a graph bounds it. `reassociate` takes operands of products to be of ordinary
size, as weights and activations are: of chains in f16 whose tensors are each at another size between 1/16 and 16, one
in some hundreds leaves the range. Scales are not of ordinary size: what they are multiplied into in f16 is
`approximate`, unless the scale is a number in the graph between 1/16 and 16. Who multiplies f16 tensors of wider ranges
asks for `exact`. Rules other than `chain-order` and `fold-through-bias` make no tensor that is more than 16 times as
large or as small as one of the graph's.

| rule | values rounded otherwise |
|---|---|"""


def ops() -> str:
    """docs/ops.md, from `fusion_ir.ops.OPS`."""
    lines = [
        "# Ops",
        "",
        "The language of fusion graphs: one row of `OPS` each (`fusion_ir/ops/`). *ulps* is the largest error against",
        "the exact value, in units of the last place of the compute type (f32 for 16- and 8-bit floats); 0 means bit",
        "for bit.",
    ]
    for kind, title in _KINDS.items():
        rows = [row for row in OPS.values() if row.kind is kind]
        if rows:
            lines += ["", f"## {title}", "", "| op | operands | attributes | ulps | |", "|---|---|---|---|---|"]
        for row in rows:
            arity = f"{row.arity[0]} or more" if isinstance(row.arity, tuple) else str(row.arity)
            attributes = ", ".join(f"{name}: {type_}" for name, type_ in row.attrs.items())
            lines.append(f"| `{row.name}` | {arity} | {attributes} | {row.ulps:g} | {_cell(row.doc)} |")
    return "\n".join(lines) + "\n"


def families() -> str:
    """docs/families.md, from `codegen.families.FAMILIES`."""
    lines = ["# Kernel families", "", "In the order in which ties are decided.", ""]
    for name, family in FAMILIES.items():
        text = sys.modules[type(family).__module__].__doc__ or ""
        lines += [f"## `{name}`", "", *(line.strip() for line in text.strip().splitlines()), ""]
    return "\n".join(lines)


def rewrites() -> str:
    """docs/rewrites.md, from `scheduler.rewrites`."""
    lines = [
        "# Rewrites",
        "",
        "What a graph computes, computed otherwise. *exact* gives the same bits; *reassociate* is equal by the laws",
        "of arithmetic on real numbers, and rounds no more values and none to a narrower dtype",
        "(`scheduler/rewrites/rule.py`). A request names the loosest class that it allows (`--numerics`). x, y are",
        "tensors, a, b, c constants, which are multiplied and added ahead of time; `[x | y]` is one behind the other.",
    ]
    empty = Graph((), ())
    replacing = (
        *RULES,
        commuting(),
        NARROW,
        *Sinking(empty).rules(),
        AxesInOrder(lambda _: True).rule(),
        *splitting(Tasks(1, 1)),  # of GPUs, which split contractions, too
    )
    for title, table in (
        ("Alternatives: the search weighs them against the graph as given", ALTERNATIVES),
        ("Alternatives on CPUs alone", split_offers(Tasks(1))),
        ("Replacements: made wherever they match, before the search", replacing),
    ):
        lines += ["", f"## {title}", "", "| rule | | class |", "|---|---|---|"]
        lines += [f"| `{rule.name}` | {_cell(rule.equation)} | {rule.numerics} |" for rule in table]
    lines += _ROUNDING.splitlines()
    for offer in ALTERNATIVES:
        if offer.rounding:
            lines.append(f"| `{offer.name}` | {_cell(offer.rounding)} |")
    return "\n".join(lines) + "\n"


def settings() -> str:
    """docs/settings.md, from `service.settings.Settings`."""
    lines = [
        "# Settings",
        "",
        "A flag wins over a variable `FUSEPLAN_NAME`, that over `config.toml`, that over the default.",
        "`fuseplan config show` prints what is in force and why. The file is `$FUSEPLAN_CONFIG`, else",
        "`fuseplan/config.toml` in the XDG folder for configuration.",
        "",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    for row in describe(env={"HOME": "~"}):
        value = f"`{row.value}`" if row.value != "" else "none"
        lines.append(f"| `{row.name}` | {value} | {_cell(row.help)} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    """docs/command_line.md, from the commands' own help."""
    lines = [
        "# Command line",
        "",
        "`fuseplan COMMAND --help` lists the options. Results go to stdout, everything else to stderr, progress only",
        "to a terminal; `--json` prints one JSON document. Exit codes: 0 ok, 1 failed, 2 bad input,",
        "130 interrupted: Ctrl-C ends a command with one line on stderr, wherever it is.",
        "",
        "| command | |",
        "|---|---|",
    ]
    lines += [f"| `fuseplan {name}` | {_cell(help_)} |" for name, help_ in commands().items()]
    return "\n".join(lines) + "\n"


def architecture() -> str:
    """ARCHITECTURE.md: its written part as it stands, then a line per room: what it is for, by its package's own first
    sentence, and what its files are called."""
    written = (ROOT / "ARCHITECTURE.md").read_text().partition(_FILES)[0]
    lines = [_FILES, "", "Printed by `make docs`. Each file begins with a sentence that says what it is about."]
    lines += ["", "| room | what it is for | its files |", "|---|---|---|"]
    for package in (*PACKAGES, "docker"):
        for folder in (ROOT / package, *sorted(p for p in (ROOT / package).rglob("*") if p.is_dir())):
            files = sorted(p for p in folder.iterdir() if p.is_file() and p.name != "__init__.py" and first_sentence(p))
            names = " ".join(f"`{p.stem if p.suffix == '.py' else p.name}`" for p in files)
            about = first_sentence(folder / "__init__.py") if (folder / "__init__.py").exists() else ""
            if names:
                lines.append(f"| `{folder.relative_to(ROOT)}/` | {_cell(about)} | {names} |")
    return written + "\n".join(lines) + "\n"


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring, or of the comment that a file in C++, CSS, JavaScript, YAML, for a
    shell or for Docker starts with; the title of docker/README.md; "" for other files."""
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
    elif path.suffix in _COMMENTED:
        lines = path.read_text().splitlines()
        comment = list(takewhile(lambda line: line.startswith(("//", "/*")), lines))
        text = " ".join(line.strip("/* ") for line in comment)
    elif path.suffix in _HASHED or path.name == "Dockerfile":
        lines = path.read_text().splitlines()
        comment = list(takewhile(lambda line: line.startswith("# "), lines[lines[0].startswith("#!") :]))
        text = " ".join(line.strip("# ") for line in comment)
    elif path.name == "README.md" and path.parent.name == "docker":
        text = path.read_text().partition("\n")[0].strip("# ") + "."
    else:
        return ""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    found = re.match(r".*?[.](?= [A-Z]|$)", paragraph)
    return found.group() if found else paragraph


PAGES: dict[str, Callable[[], str]] = {
    "../ARCHITECTURE.md": architecture,
    "command_line.md": command_line,
    "errors.md": errors.markdown,
    "families.md": families,
    "rewrites.md": rewrites,
    "ops.md": ops,
    "settings.md": settings,
}


def main() -> int:
    """Writes every page beside this file."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page())
    return 0


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
