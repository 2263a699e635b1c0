"""Bodies of requests and answers about batches."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from service.api.models import Key, ResolveRequest
from service.errors import Problem
from tuning_db.states import BatchState, OperationState, PlanState

# Printable, so that one stands in a line of anybody's log: no control characters, line separators or lone surrogates.
CUSTOM_ID = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,512}$"


class BatchLine(ResolveRequest):
    """A line of a batch: what `POST /v1/plans:resolve` takes, and the sender's name for it."""

    custom_id: Annotated[str, StringConstraints(min_length=1, max_length=512)]


class ItemCounts(BaseModel):
    """How many items of a batch are in each state."""

    queued: int
    running: int
    done: int
    failed: int
    cancelled: int


class BatchSummary(BaseModel):
    """A batch. It is `done` once every item has ended, well or badly; `cancelled` where somebody ended it before."""

    id: str
    state: BatchState
    done: bool
    items: int
    counts: ItemCounts
    created_at: str
    cancelled_at: str | None
    finished_at: str | None


class Segments(BaseModel):
    """Segments that searches for the graphs of a batch tried, as far as they have got.

    used: the segments of every graph, added up; distinct: those among them; shared: used more than once, and so tuned
    for one graph and found by the others.
    """

    used: int
    distinct: int
    shared: int


class RunningItem(BaseModel):
    """An item that is being planned. `progress`: how far its operation is."""

    custom_id: str
    operation: str
    progress: dict[str, Any] | None


class BatchProgress(BatchSummary):
    """A batch, and what is being done for it now."""

    running: list[RunningItem]


class BatchModel(BatchProgress):
    """A batch with all that is known of it."""

    segments: Segments


class BatchPage(BaseModel):
    """A page of batches, newest first. `next_page_token` is null on the last."""

    batches: list[BatchSummary]
    next_page_token: str | None


class BatchResult(BaseModel):
    """An item that has its plan. `cache`: whether the plan was there when the item's turn came."""

    custom_id: str
    plan_key: Key
    graph_key: Key
    cache: Literal["hit", "miss"]
    state: PlanState


class BatchError(BaseModel):
    """An item without a plan, and why."""

    custom_id: str
    problem: Problem


class ItemEvent(BaseModel):
    """An item has ended: exactly one of `result` and `error` is there."""

    custom_id: str
    state: OperationState
    result: BatchResult | None = Field(None)
    error: Problem | None = Field(None)
