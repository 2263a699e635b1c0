"""Plans as answers to requests: `Store.plans`, with the hot path, `resolve`."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fusion_ir.records import Plan
from tuning_db import answers, content, plan_bodies, plan_lists
from tuning_db.engine import Database
from tuning_db.failures import Failures
from tuning_db.hits import HitCounter
from tuning_db.lately_verified import LatelyVerified
from tuning_db.models import PlanBinaryRow, PlanRow, PlanSourceRow
from tuning_db.page_tokens import Page
from tuning_db.plan_lists import ALL_PLANS, PlanFilter, PlanSummary
from tuning_db.prefixes import beginning_with
from tuning_db.reading.answers import asked, resolve
from tuning_db.reading.content import binary, source, verify
from tuning_db.reading.graphs import verifies
from tuning_db.requests import WHOLE, Conditions, RequestKey, Resolved, Searched
from tuning_db.states import PlanState


class Plans:
    """Plans, the requests that they answer, and their binaries and sources. What of them was looked at within a minute
    and found whole is not looked at again for a hit; damage in between is found when it is read."""

    def __init__(
        self, database: Database, failures: Failures, verified: LatelyVerified, clock: Callable[[], float]
    ) -> None:
        """verified: shared with whoever reads graphs. clock: seconds since 1970."""
        self._database = database
        self._failures = failures
        self._verified = verified
        self._hits = HitCounter(database, clock)

    def resolve(self, request: RequestKey, now: Conditions | None = None, seconds: float = 0.0) -> Resolved | None:
        """The hot path: the best stored plan for `request`; counts a hit. None: a miss.

        With `now`, a plan measured under other conditions is `stale`: usable, due for another search. seconds: the
        search time that the asker would wait for; a plan whose search was cut short is due, too, where this is more.
        """
        resolved = self.answer(request, now, seconds)
        if resolved is not None and not self._has_graph(request.graph_key):
            return None
        distrusted = set[str]()
        while resolved is not None and not self._has_parts(resolved):
            if resolved.plan_key in distrusted:  # in a damaged file a row may be found that no update reaches
                return None
            distrusted.add(resolved.plan_key)
            resolved = self.answer(request, now, seconds) if self._distrust([resolved.plan_key]) else None
        if resolved is not None:
            self._hits.hit(resolved)
        return resolved

    def answer(self, request: RequestKey, now: Conditions | None = None, seconds: float = 0.0) -> Resolved | None:
        """The best stored plan for `request`: `resolve` without a hit counted, and without a check that the plan's
        graph, binaries and sources verify."""
        found = resolve(self._database, request, now, seconds)
        if found is None or not found.due or now is None or self._failures.failure(request, now, seconds) is None:
            return found
        return replace(found, due=False)

    def asked(self, plan_key: str) -> list[RequestKey]:
        """The requests that a plan answers now."""
        return asked(self._database, plan_key)

    def put(
        self,
        request: RequestKey,
        plan: Plan,
        state: PlanState,
        binaries: Mapping[str, bytes],
        sources: Mapping[str, str],
        searched: Searched = WHOLE,
        *,
        only_better: bool = False,
    ) -> str:
        """Makes `plan` the answer to `request`; returns the answer's key. `binaries` and `sources` are keyed by sha256.

        only_better: where the best stored plan for the request stays (`answers.stays`), that plan is the answer: the
        search is noted, `plan` is not kept. Raises ValueError where the plan answers another request, its graph is not
        stored, content does not hash to its key, or a step's binary is neither given nor stored.
        """
        database = self._database
        return plan_bodies.store_plan(
            database, request, plan, state, binaries, sources, searched, only_better=only_better
        )

    def mark(self, request: RequestKey, state: PlanState, now: Conditions | None = None) -> bool:
        """Changes the state of the stored answer, and with `now` the conditions under which it was last verified.
        False: there is no answer."""
        return answers.mark(self._database, request, state, now)

    def plan(self, plan_key: str) -> bytes | None:
        """The body of a plan: JSON whose sha256 is its key."""
        return plan_bodies.body(self._database, plan_key)

    def summary(self, plan_key: str) -> PlanSummary | None:
        """The entry of one plan in lists of plans."""
        return plan_lists.summary(self._database, plan_key)

    def plans(
        self, selected: PlanFilter = ALL_PLANS, page_token: str | None = None, limit: int = 50
    ) -> Page[PlanSummary]:
        """A page of plans, newest first. Raises ValueError for a bad page token or a limit outside 1 ... 1000."""
        return plan_lists.page(self._database, selected, page_token, limit)

    def keys(self, prefix: str, limit: int = 1000) -> list[str]:
        """At most `limit` keys of stored plans that begin with `prefix`. Raises ValueError unless that is 4 to 64
        hexadecimal digits."""
        return beginning_with(self._database, PlanRow.plan_key, prefix, limit)

    def evict(self, plan_key: str) -> bool:
        """Removes a plan, the requests it answers, and the binaries and sources only it needs. False: there is none."""
        return plan_bodies.evict(self._database, plan_key)

    def binary(self, sha256: str) -> bytes | None:
        """The binary. Where there is none that verifies, plans that need it answer nothing any more."""
        found = binary(self._database, sha256)
        if found is None:
            self._lost(sha256, PlanBinaryRow)
        return found

    def source(self, sha256: str) -> str | None:
        """The text of a source. Where there is none that verifies, plans that were stored with it answer nothing any
        more."""
        found = source(self._database, sha256)
        if found is None:
            self._lost(sha256, PlanSourceRow)
        return found

    def flush_hits(self) -> None:
        """Writes the hits counted so far, which otherwise happens once a second."""
        self._hits.flush()

    def close(self) -> None:
        """Writes the hits counted so far, and counts no more."""
        self._hits.close()

    def _has_graph(self, graph_key: str) -> bool:
        """Whether the graph is stored and verifies, or did lately."""
        if graph_key in self._verified:
            return True
        whole = verifies(self._database, graph_key)
        if whole:
            self._verified.add(graph_key)
        return whole

    def _has_parts(self, resolved: Resolved) -> bool:
        """`_has_graph` for the binaries and sources of a plan."""
        if resolved.plan_key in self._verified:
            return True
        steps = json.loads(resolved.body)["steps"]
        binaries, sources = ({step[name] for step in steps if step[name]} for name in ("binary", "source"))
        whole = verify(self._database, resolved.plan_key, binaries, sources)
        if whole:
            self._verified.add(resolved.plan_key, binaries | sources)
        return whole

    def _distrust(self, plan_keys: Collection[str]) -> int:
        for key in plan_keys:
            self._verified.forget(key)
        return answers.distrust(self._database, sorted(plan_keys))

    def _lost(self, sha256: str, table: type[PlanBinaryRow] | type[PlanSourceRow]) -> None:
        """Marks the answers by plans with a lost or damaged binary or source as failed, see `answers.distrust`."""
        needing = {*content.plans_with(self._database, table, sha256), *self._verified.with_part(sha256)}
        if needing:
            self._distrust(needing)
