"""The records that every package passes on: frozen pydantic models."""

from fusion_ir.records.base import Record
from fusion_ir.records.device import Ceilings, Device, TargetKind
from fusion_ir.records.library_call import CallLoop, CallMatrix, CallVector, Compute, LibraryCall
from fusion_ir.records.measurement import CompileReport, Measurement, Status
from fusion_ir.records.plan import (
    NUMERICS,
    WIRE_VERSION,
    Buffer,
    Numerics,
    Place,
    Plan,
    Ref,
    Search,
    Step,
    TensorAccess,
    TensorSpec,
)
from fusion_ir.records.reason import Alternative, Contraction, Cost, FamilyCost, Reason, Refusal
from fusion_ir.records.spent import Spent
from fusion_ir.records.split_half import Half, Written
from fusion_ir.records.surroundings import Moment, Surroundings
from fusion_ir.records.tensor_map import TensorMapSpec

__all__ = [
    "NUMERICS",
    "WIRE_VERSION",
    "Alternative",
    "Buffer",
    "CallLoop",
    "CallMatrix",
    "CallVector",
    "Ceilings",
    "CompileReport",
    "Compute",
    "Contraction",
    "Cost",
    "Device",
    "FamilyCost",
    "Half",
    "LibraryCall",
    "Measurement",
    "Moment",
    "Numerics",
    "Place",
    "Plan",
    "Reason",
    "Record",
    "Ref",
    "Refusal",
    "Search",
    "Spent",
    "Status",
    "Step",
    "Surroundings",
    "TargetKind",
    "TensorAccess",
    "TensorMapSpec",
    "TensorSpec",
    "Written",
]
