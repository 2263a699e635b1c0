"""Costs of each kernel family for a contraction, as `fuseplan explain` shows them."""

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fusion_ir.records import Contraction, Cost, FamilyCost
from service.wording.contractions import contraction_words, launch_words
from service.wording.formatting import duration
from service.wording.nodes import NodeWords


def contraction_view(contraction: Contraction, words: NodeWords) -> RenderableType:
    """A table with a line for each launch and family that could compute the contraction, the plan's marked; then the
    families that refuse it."""
    heading = Text("What each family costs for ", style="bold")
    heading.append(contraction_words(contraction, words))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=True, show_edge=False, header_style="bold", expand=False)
    table.add_column("one launch", overflow="fold")
    table.add_column("family and schedule", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("apart", justify="right", no_wrap=True)
    refused: dict[tuple[str, str], list[str]] = {}  # which launches, by families and what they say
    takes_it: set[str] = set()
    names = launch_words(contraction, words)
    for alternative, name in zip(contraction.alternatives, names, strict=True):
        apart = _cost(alternative.apart)
        for row, cost in enumerate(alternative.costs):
            table.add_row(name if row == 0 else "", _schedule(cost), _cost(cost.cost), apart if row == 0 else "")
        if not alternative.costs:
            table.add_row(name, Text("no family", style="dim"), "", apart)
        for refusal in alternative.refusals:
            # Who refuses the contraction alone refuses it with others: that need not be read twice.
            families = [f for f in refusal.families if alternative.apart is None or f in takes_it]
            if families:
                refused.setdefault((", ".join(families), refusal.text), []).append(name)
        if alternative.apart is None:
            takes_it |= {c.family for c in alternative.costs}
    lines = (
        Text.assemble((families, "cyan"), f", {names[0] if len(names) == 1 else f'{len(names)} launches'}: {text}")
        for (families, text), names in refused.items()
    )
    return Group(heading, Padding(table, (0, 0, 0, 1)), *(Padding(line, (0, 0, 0, 2)) for line in lines))


def _schedule(cost: FamilyCost) -> Text:
    parameters = cost.schedule.removeprefix(cost.family).strip("{}").replace(",", ", ")
    mark = (" in the plan", "bold green") if cost.chosen else ""
    return Text.assemble((cost.family, "cyan"), mark, (f"  {parameters}", "dim"))


def _cost(cost: Cost | None) -> str:
    """A predicted time with a tilde."""
    return "" if cost is None else f"{'' if cost.measured else '~'}{duration(cost.us)}"
