"""Plans, measurements, devices and the job queue, on SQLite or PostgreSQL. Start at `Store`."""

from tuning_db.batch_endings import Ending
from tuning_db.batches import Batch, BatchItem, BatchState, ItemState, NewItem, Sharing, Work
from tuning_db.devices import StoredDevice
from tuning_db.engine import shown
from tuning_db.errors import DatabaseError, KeyReused, NeverFits, QueueFull
from tuning_db.failures import Failure, FailureKey
from tuning_db.graphs import Names, NewGraph, StoredGraph
from tuning_db.measurements import Trial
from tuning_db.operation import Operation, OperationState
from tuning_db.operations import MAX_ATTEMPTS
from tuning_db.page_tokens import Page
from tuning_db.plans import PlanFilter, PlanSummary
from tuning_db.prefixes import is_prefix
from tuning_db.requests import Conditions, RequestKey, Resolved, Searched, State
from tuning_db.schema import revision_of
from tuning_db.store import Store

__all__ = [
    "MAX_ATTEMPTS",
    "Batch",
    "BatchItem",
    "BatchState",
    "Conditions",
    "DatabaseError",
    "Ending",
    "Failure",
    "FailureKey",
    "ItemState",
    "KeyReused",
    "Names",
    "NeverFits",
    "NewGraph",
    "NewItem",
    "Operation",
    "OperationState",
    "Page",
    "PlanFilter",
    "PlanSummary",
    "QueueFull",
    "RequestKey",
    "Resolved",
    "Searched",
    "Sharing",
    "State",
    "Store",
    "StoredDevice",
    "StoredGraph",
    "Trial",
    "Work",
    "is_prefix",
    "revision_of",
    "shown",
]
