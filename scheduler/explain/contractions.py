"""Costs of every contraction of a graph by family: alone, as the plan has it, and with other neighbours."""

from collections.abc import Sequence

from fusion_ir.records import Alternative, Contraction, Cost, FamilyCost, Plan, Refusal, Status, Step
from scheduler.bitset import bits
from scheduler.plans.assemble import positions
from scheduler.rewrites.prepare import Prepared
from scheduler.rewrites.provenance import halves_of
from scheduler.segments.atoms import Atoms
from scheduler.segments.enumeration import Candidate, Candidates
from scheduler.tuning.trials import Ledger

MOST = 24  # contractions told of, those that are computed in the same way counted once
MEASURED = 2  # fused segments that were measured and are not the plan's


def contractions(
    prepared: Prepared, atoms: Atoms, cover: Sequence[Candidate], plan: Plan, found: Candidates, ledger: Ledger
) -> tuple[tuple[Contraction, ...], int]:
    """A table of costs for each contraction, in the graph's order, the first `MOST`; and how many were left out. cover:
    segments of the plan's steps, in order. atoms: those of `found`; the cover may be of others. Times nothing. In the
    emulator, where predictions are of no device, there are no tables."""
    if ledger.device.target == "emulator":
        return (), 0
    bit = {node: a for a, node in enumerate(atoms.nodes)}
    alike: dict[tuple[str, str], list[int]] = {}
    firsts: dict[tuple[str, str], tuple[int, int]] = {}
    for step, candidate in enumerate(cover):
        nodes = candidate.families.atoms.nodes
        for node in [nodes[b] for b in bits(candidate.segment.members) if nodes[b].op == "contract"]:
            single = found.whole(1 << bit[node]) if node in bit else None
            key = candidate.segment.key, single.segment.key if single else ""
            alike.setdefault(key, []).extend(prepared.origin.get(node, ()))
            firsts.setdefault(key, (bit[node], step))
    tables = _Tables(prepared, atoms, cover, plan, found, ledger)
    told = sorted(firsts.items(), key=lambda item: item[1])[:MOST]
    return tuple(
        Contraction(
            nodes=tuple(sorted({*alike[key]})),
            alternatives=tables.alternatives(a, step),
            half=next(iter(halves_of(prepared, [atoms.nodes[a]])), None),
        )
        for key, (a, step) in told
    ), len(firsts) - len(told)


class _Tables:
    """Tables of one plan's contractions, with the data that they share."""

    def __init__(
        self,
        prepared: Prepared,
        atoms: Atoms,
        cover: Sequence[Candidate],
        plan: Plan,
        found: Candidates,
        ledger: Ledger,
    ) -> None:
        self.prepared, self.atoms, self.cover, self.plan = prepared, atoms, cover, plan
        self.accepted = {p.members: c for p, c in found.accepted.items() if atoms.is_plain(p)}
        self.ledger = ledger
        self.contracts = sum(1 << a for a, node in enumerate(atoms.nodes) if node.op == "contract")
        bit = {node: 1 << a for a, node in enumerate(atoms.nodes)}
        self.masks = [
            sum(bit.get(c.families.atoms.nodes[b], 0) for b in bits(c.segment.members)) for c in cover
        ]  # of the cover, among these atoms

    def alternatives(self, a: int, step: int) -> tuple[Alternative, ...]:
        """Segments with contraction `a`: alone, as the plan has it at `step`, then with others."""
        own = self.masks[step]
        found: dict[int, Candidate] = {1 << a: c} if (c := self.accepted.get(1 << a)) else {}
        found[own] = self.cover[step]
        found |= {m: self.accepted[m] for m in (*self._merged(own), *self._fused(a)) if m not in found}
        return tuple(self._alternative(a, m, c, self.plan.steps[step] if m == own else None) for m, c in found.items())

    def _merged(self, own: int) -> list[int]:
        """The plan's segment in one launch with each one that it reads or that reads it, where the search had that."""
        reads = self.atoms.reads_of
        near = [m for m in self.masks if m != own and (reads(m) & own or reads(own) & m)]
        return [own | m for m in near if own | m in self.accepted]

    def _fused(self, a: int) -> list[int]:
        """Measured segments with the contraction, at most `MEASURED`, the largest gains first; then the widest segment
        that holds no other contraction."""
        holding = [m for m in self.accepted if m >> a & 1 and m.bit_count() > 1]
        gains: list[tuple[float, int]] = []
        for m in [
            m for m in holding if self.ledger.logs.is_open(self.accepted[m])
        ]:  # predictions of all would take time
            cost = self._cost(m)
            apart = self._apart(a, m) if cost and cost.measured else None
            if cost and apart:
                gains.append((cost.us - apart.us, m))
        alone = [m for m in holding if m & self.contracts == 1 << a]
        return [m for _, m in sorted(gains)[:MEASURED]] + sorted(alone, key=lambda m: (m.bit_count(), m))[-1:]

    def _cost(self, members: int) -> Cost | None:
        candidate = self.accepted.get(members)
        return candidate and self.ledger.known(candidate)

    def _apart(self, a: int, members: int) -> Cost | None:
        """Cost of a segment in parts: the contraction alone, what it needs of the other members, and the rest; None
        where a part has no known kernel."""
        before = members & self.atoms.ancestors[a]
        parts: list[int] = [1 << a]
        for part in (before, members & ~before & ~(1 << a)):
            parts += [part] if part in self.accepted else [1 << b for b in bits(part)]
        costs = [self._cost(p) for p in parts if p]
        known = [c for c in costs if c]
        if len(known) < len(costs):
            return None
        return Cost(us=sum(c.us for c in known), measured=all(c.measured for c in known))

    def _alternative(self, a: int, members: int, candidate: Candidate, step: Step | None) -> Alternative:
        """Costs and refusals of all families for a candidate. step: the plan's step that is the candidate, if any."""
        costs: list[FamilyCost] = []
        refusals = list(candidate.families.refusals())
        for family in candidate.families:
            answer = self._family(candidate, family, step)
            if isinstance(answer, FamilyCost):
                costs.append(answer)
            else:
                refusals.append(answer)
        return Alternative(
            nodes=positions(self.prepared, candidate.segment),
            costs=tuple(sorted(costs, key=lambda c: (not c.cost.measured, c.cost.us))),
            refusals=tuple(refusals),
            apart=self._apart(a, members) if members != 1 << a else None,
        )

    def _family(self, candidate: Candidate, family: str, step: Step | None) -> FamilyCost | Refusal:
        """Cost of the family's best known schedule; a refusal where it has none, or all that were tried failed."""
        if step is not None and step.family == family:
            us = step.predicted_us if step.time_us is None else step.time_us
            if us is not None:
                cost = Cost(us=us, measured=step.time_us is not None)
                return FamilyCost(family=family, schedule=step.schedule, cost=cost, chosen=True)
        entry = self.ledger.logs.open(candidate)
        best = entry.best()
        scale = 1.0
        if best is not None and entry.winner in entry.relative and best.time_us:
            scale = best.time_us / entry.relative[entry.winner]
        tried = [(v, m) for v, m in entry.tried.items() if v[0] == family]
        timed = [
            (scale * entry.relative[v] if v in entry.relative else m.time_us, v)
            for v, m in tried
            if m.status is Status.ok and m.time_us is not None
        ]
        if timed:
            us, (_, schedule) = min(timed)
            return FamilyCost(family=family, schedule=schedule, cost=Cost(us=us, measured=True))
        schedule = next((schedule for name, schedule in entry.pending if name == family), None)
        if schedule is not None:
            us = self.ledger.model.predicted_by(candidate, family)
            return FamilyCost(family=family, schedule=schedule, cost=Cost(us=us, measured=False))
        if not tried:
            return Refusal(families=(family,), text="has no schedule of it")
        (_, schedule), row = tried[-1]
        return Refusal(families=(family,), text=f"{schedule}: {row.status.value}: {row.detail}")
