"""What stands in the queue: kinds of operations and their payloads, written by the API and read by workers."""

import os
import secrets
import socket
from typing import Literal

from pydantic import BaseModel, ConfigDict

from fusion_ir.records import Numerics

PLAN = "plan"


def worker_name() -> str:
    """A name in the queue that no other worker has."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class PlanJob(BaseModel):
    """Payload of a `plan` operation: plan a stored graph for a target of this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    graph_key: str
    target: str
    seconds: float
    numerics: Numerics
    memory_bytes: int | None = None


class PlanResult(BaseModel):
    """Result of a `plan` operation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan_key: str
    cache: Literal["hit", "miss"]
    state: str
