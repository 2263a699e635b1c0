"""The base class of all records: frozen, closed to unknown fields, finite numbers only."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Base of every record. Immutable; unknown fields, NaN and infinities are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
