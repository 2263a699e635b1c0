"""Names of a contraction and of the launches that could compute it, at a terminal and on pages."""

from fusion_ir.ops import OPS, OpKind
from fusion_ir.records import Contraction
from service.wording.nodes import NodeWords, cut_words

_CARRIED = {"input", "cast", *(name for name, op in OPS.items() if op.kind is OpKind.VIEW)}


def contraction_words(contraction: Contraction, words: NodeWords) -> str:
    """The nodes of a contraction by name; where it is a half that a rewrite made, which half, and how it was cut."""
    if not contraction.nodes:
        return "a contraction that a rewrite made"
    nodes, half = words.list_of(contraction.nodes), contraction.half
    return nodes if half is None else f"the {half.half} half of {nodes}, {cut_words(half)}"


def launch_words(contraction: Contraction, words: NodeWords) -> list[str]:
    """A name for each alternative by the nodes that it computes besides the contraction: "alone", "with T35 cos". Views
    and casts are named only where there is nothing else, or where two alternatives would have one name."""
    others = [[n for n in a.nodes if n not in contraction.nodes] for a in contraction.alternatives]
    work = [[n for n in nodes if words.op(n) not in _CARRIED] or nodes for nodes in others]
    shown = [own if work.count(own) == 1 else all_ for own, all_ in zip(work, others, strict=True)]
    return [
        "alone" if a.apart is None else f"with {words.list_of(nodes)}"
        for a, nodes in zip(contraction.alternatives, shown, strict=True)
    ]
