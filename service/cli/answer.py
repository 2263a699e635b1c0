"""A plan as the command line got it: made here, or asked of a server."""

from dataclasses import dataclass

from fusion_ir.records import Plan


@dataclass(frozen=True)
class Answer:
    """A plan as both ways of asking give it. `kept`: where it is stored; `address`: of its page, from a server."""

    plan: Plan
    target: str
    state: str
    cache: str
    kept: str
    address: str | None = None
