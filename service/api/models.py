"""Bodies of requests and answers. Answers on the hot path are spliced from stored bytes; their models document them."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from fusion_ir.formats.side_json import SideModel
from fusion_ir.records import Device, Numerics, Plan
from service.errors import Problem
from service.settings import TARGET, TARGET_WORDS
from tuning_db.refusals import Why
from tuning_db.states import OperationState, PlanState

KEY = r"^[0-9a-f]{64}$"
DEVICE_KEY = r"^(cpu|cuda|emulator)-[0-9a-f]{16}$"

Key = Annotated[str, StringConstraints(pattern=KEY)]


class Body(BaseModel):
    """Base of request bodies: strict types, no unknown members, finite numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ResolveRequest(Body):
    """A graph to plan and the target to plan for. Exactly one of `graph`, `source` and `graph_key` names the graph."""

    graph: dict[str, Any] | None = Field(None, description="The graph in the JSON wire format.")
    source: str | None = Field(None, description="The graph as text, in `format`.")
    format: Literal["json", "text", "nvfuser", "kernel_math", "migraphx"] | None = Field(
        None, description="Of `source`; recognised where absent."
    )
    shapes: SideModel | None = Field(None, description="What `source` leaves open.")
    graph_key: Key | None = Field(None, description="The key of a graph that was sent before.")
    target: Annotated[str, StringConstraints(pattern=TARGET)] | None = Field(None, description=f"{TARGET_WORDS}.")
    seconds: float | None = Field(None, ge=0.1, le=86400, description="Seconds of search on a miss.")
    numerics: Numerics = "reassociate"
    memory_bytes: int | None = Field(
        None,
        ge=1,
        le=2**63 - 1,
        description="Most bytes of temporaries that the plan may need; any number where absent.",
    )
    device_key: str | None = Field(
        None,
        pattern=DEVICE_KEY,
        description="The class of devices that the plan has to be for: where the server's device of this target is of "
        "another one, the answer is 409 `other-device`.",
    )
    sampler: str | None = Field(
        None,
        max_length=200,
        description="What steers the search for schedules on a miss: one of those that the setting `samplers` lists, "
        "the first of them where absent. A plan that is stored is the answer whatever found it.",
    )


class Names(BaseModel):
    """The sender's names of in0, in1, ... and out0, out1, ...; and of %0, %1, ... where any has one, "" for those that
    have none."""

    inputs: list[str]
    outputs: list[str]
    nodes: list[str] = Field(default_factory=list)


class Resolution(BaseModel):
    """A plan for the request. `plan` is the stored body: its bytes hash to `plan_key`. `cut_short`: why the last search
    for it ended before it had measured what it wanted to. `refining`: another search is waiting or running, whose plan
    becomes the answer where it is better."""

    state: PlanState
    cache: Literal["hit", "miss"]
    plan_key: Key
    graph_key: Key
    device_key: str
    cut_short: str | None = None
    refining: bool = False
    plan: Plan
    names: Names


class OperationModel(BaseModel):
    """A piece of work that outlasts its request. Once `done`, exactly one of `result` and `error` is there."""

    id: str
    kind: str
    state: OperationState
    done: bool
    attempt: int
    cancel_requested: bool
    progress: dict[str, Any] | None = None
    created_at: str
    result: dict[str, Any] | None = None
    error: Problem | None = None


class Pending(BaseModel):
    """No plan yet: keep running your own code, ask again later."""

    operation: OperationModel
    best_plan: Key | None = None


class RefusalBody(Body):
    """A client's refusal of a plan. id: digits of the client's own, so that one that is sent again counts once.
    `slower` comes with both times: that of the plan, and that of what it is to replace."""

    id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    why: Why
    text: str = Field("", max_length=2000, description="Why, in the client's words.")
    took_us: float | None = Field(None, gt=0, le=1e12, description="Time of a run of the plan.")
    instead_us: float | None = Field(None, gt=0, le=1e12, description="Time of what the plan is to replace.")

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.why == "slower" and (self.took_us is None or self.instead_us is None):
            raise ValueError("`slower` comes with `took_us` and `instead_us`")
        return self


class RefusalModel(BaseModel):
    """A stored refusal of a plan."""

    id: str
    plan_key: Key
    why: Why
    text: str
    took_us: float | None
    instead_us: float | None
    created_at: str


class RefusalPage(BaseModel):
    """The newest refusals of a plan, the newest first."""

    refusals: list[RefusalModel]


class PublicKey(BaseModel):
    """The key that answers with plans are signed with. public_key: 32 bytes in base64; key_id: the first digits of the
    sha256 of these bytes, as signatures have it."""

    algorithm: Literal["Ed25519"]
    key_id: str
    public_key: str


class PlanRow(BaseModel):
    """One request with its current plan, without the plan's body."""

    plan_key: Key
    graph_key: Key
    device_key: str
    device: str
    numerics: str
    state: PlanState | Literal["superseded"]
    cut_short: str | None = None
    steps: int
    time_us: float | None
    unfused_us: float | None
    lower_bound_us: float
    hits: int
    created_at: str


class PlanPage(BaseModel):
    """A page of plans, newest first. `next_page_token` is null on the last."""

    plans: list[PlanRow]
    next_page_token: str | None


class GraphModel(BaseModel):
    """A stored graph: canonical text, and the names that it was sent with last."""

    graph_key: Key
    text: str
    names: Names


class QuarantineModel(BaseModel):
    """A device of the server's machine that is out of service, until a person releases it."""

    name: str
    reason: str
    since: str


class DevicePage(BaseModel):
    """Devices that plans were made for; and those of this machine that failed to run a kernel known to be right."""

    devices: dict[str, Device]
    quarantined: dict[str, QuarantineModel] = {}


class Health(BaseModel):
    """`ok`, or what is wrong."""

    status: Literal["ok", "starting", "unavailable"]
    checks: dict[str, str] = {}
