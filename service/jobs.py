"""Operations in the queue: their kinds and payloads, written by the API and read by workers."""

import secrets
import socket
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from fusion_ir.records import Numerics

PLAN = "plan"


def worker_token() -> str:
    """Eight random hexadecimal digits, which tell a worker from others with its process id, here or on another host
    with this host's name."""
    return secrets.token_hex(4)


def worker_name(process_id: int, token: str) -> str:
    """The name in the queue of a worker, which says where it runs: host, process id and token."""
    return f"{socket.gethostname()}:{process_id}:{token}"


class PlanJob(BaseModel):
    """Payload of a `plan` operation: plan a stored graph for a target of this machine. again: even where there is a
    plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    graph_key: str
    target: str
    seconds: float
    numerics: Numerics
    memory_bytes: int | None = None
    # Left out where they say nothing: workers of before, on the same database, know no such fields.
    sampler: str | None = Field(default=None, exclude_if=lambda sampler: sampler is None)
    again: bool = Field(default=False, exclude_if=lambda again: not again)


class PlanResult(BaseModel):
    """Result of a `plan` operation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan_key: str
    cache: Literal["hit", "miss"]
    state: str
