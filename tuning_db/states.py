"""States of plans, of operations and of batches, as they are stored, named by the API and shown."""

from typing import Literal, get_args

PlanState = Literal["measured", "predicted", "stale", "failed"]
PLAN_STATES: tuple[PlanState, ...] = get_args(PlanState)

# An item of a batch is in the state of the operation that it waits for.
OperationState = Literal["queued", "running", "done", "failed", "cancelled"]
OPERATION_STATES: tuple[OperationState, ...] = get_args(OperationState)

BatchState = Literal["running", "done", "cancelled"]
