"""The client of a Fuseplan server: `PlanClient` asks for plans and kernels, and goes on where the server does not."""

from fuseplan_client.server.answers import Answer, Operation, Pending, TensorNames
from fuseplan_client.server.client import AsyncPlanClient, PlanClient
from fuseplan_client.server.errors import (
    AnswerCutOff,
    BadAnswer,
    BadArgument,
    PlanServerError,
    ProblemAnswer,
    ServerAbsent,
    ServerSlow,
    Untrusted,
)
from fuseplan_client.server.limits import Limits

__all__ = [
    "Answer",
    "AnswerCutOff",
    "AsyncPlanClient",
    "BadAnswer",
    "BadArgument",
    "Limits",
    "Operation",
    "Pending",
    "PlanClient",
    "PlanServerError",
    "ProblemAnswer",
    "ServerAbsent",
    "ServerSlow",
    "TensorNames",
    "Untrusted",
]
