"""What each family costs for a contraction, as `fuseplan explain` shows it."""

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fusion_ir.ops import OPS, OpKind
from fusion_ir.records import Alternative, Contraction, Cost, FamilyCost
from service.formatting import duration

_SHOWN = 6  # nodes
_CARRIED = {"input", "cast", *(name for name, op in OPS.items() if op.kind is OpKind.VIEW)}


def contraction_view(contraction: Contraction, ops: Mapping[int, str]) -> RenderableType:
    """A line for each launch and family that could compute it, the plan's marked; then who refuses."""
    heading = Text("What each family costs for ", style="bold")
    heading.append(_nodes(contraction.nodes, ops) if contraction.nodes else "a contraction that a rewrite made")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=True, show_edge=False, header_style="bold", expand=False)
    table.add_column("one launch", overflow="fold")
    table.add_column("family and schedule", overflow="fold")
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("apart", justify="right", no_wrap=True)
    refused: list[Text] = []
    takes_it: set[str] = set()
    for alternative in contraction.alternatives:
        name, apart = _name(alternative, contraction, ops), _cost(alternative.apart)
        for row, cost in enumerate(alternative.costs):
            table.add_row(name if row == 0 else "", _schedule(cost), _cost(cost.cost), apart if row == 0 else "")
        if not alternative.costs:
            table.add_row(name, Text("no family", style="dim"), "", apart)
        for refusal in alternative.refusals:
            # Who refuses the contraction alone refuses it with others: that need not be read twice.
            families = [f for f in refusal.families if alternative.apart is None or f in takes_it]
            if families:
                refused.append(Text.assemble((", ".join(families), "cyan"), f", {name}: {refusal.text}"))
        if alternative.apart is None:
            takes_it |= {c.family for c in alternative.costs}
    return Group(heading, Padding(table, (0, 0, 0, 1)), *(Padding(line, (0, 0, 0, 2)) for line in refused))


def _schedule(cost: FamilyCost) -> Text:
    parameters = cost.schedule.removeprefix(cost.family).strip("{}").replace(",", ", ")
    mark = (" in the plan", "bold green") if cost.chosen else ""
    return Text.assemble((cost.family, "cyan"), mark, (f"  {parameters}", "dim"))


def _name(alternative: Alternative, contraction: Contraction, ops: Mapping[int, str]) -> str:
    """What is computed besides the contraction; views and casts only where there is nothing else."""
    if alternative.apart is None:
        return "alone"
    others = [n for n in alternative.nodes if n not in contraction.nodes]
    work = [n for n in others if ops.get(n) not in _CARRIED]
    return f"with {_nodes(work or others, ops)}"


def _nodes(nodes: Sequence[int], ops: Mapping[int, str]) -> str:
    """ "%9 add, %10 gelu"."""
    shown = ", ".join(f"%{n} {ops[n]}" if n in ops else f"%{n}" for n in nodes[:_SHOWN])
    return f"{shown} and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else shown


def _cost(cost: Cost | None) -> str:
    """A predicted time with a tilde."""
    return "" if cost is None else f"{'' if cost.measured else '~'}{duration(cost.us)}"
