"""What stands in the queue: kinds of operations and their payloads, written by the API and read by workers."""

import secrets
import socket
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fusion_ir.records import Numerics

PLAN = "plan"


def worker_token() -> str:
    """What no other worker with the process id has, here or on a host of the same name."""
    return secrets.token_hex(4)


def worker_name(process_id: int, token: str) -> str:
    """The name in the queue of a worker, which says where it runs: host, process id and token."""
    return f"{socket.gethostname()}:{process_id}:{token}"


class PlanJob(BaseModel):
    """Payload of a `plan` operation: plan a stored graph for a target of this machine, `again` though there is a
    plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    graph_key: str
    target: str
    seconds: float
    numerics: Numerics
    memory_bytes: int | None = None
    # Left out where it is not so: workers of before, on the same database, know no such field.
    again: bool = Field(default=False, exclude_if=lambda again: not again)


class PlanResult(BaseModel):
    """Result of a `plan` operation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan_key: str
    cache: Literal["hit", "miss"]
    state: str
