"""The records that every package passes on: frozen pydantic models."""

from fusion_ir.records.base import Record
from fusion_ir.records.device import Ceilings, Device, TargetKind
from fusion_ir.records.measurement import Measurement, Status
from fusion_ir.records.plan import (
    NUMERICS,
    WIRE_VERSION,
    Buffer,
    Numerics,
    Place,
    Plan,
    Reason,
    Ref,
    Search,
    Step,
    TensorSpec,
)

__all__ = [
    "NUMERICS",
    "WIRE_VERSION",
    "Buffer",
    "Ceilings",
    "Device",
    "Measurement",
    "Numerics",
    "Place",
    "Plan",
    "Reason",
    "Record",
    "Ref",
    "Search",
    "Status",
    "Step",
    "TargetKind",
    "TensorSpec",
]
