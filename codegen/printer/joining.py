"""Functions that combine parts of a reduction's result."""

from codegen.lowering.value import Value
from codegen.printer.expressions import spell


def combination(v: Value) -> str:
    """A function that combines two results of a reduction."""
    combine = str(v.attr[0])
    step = f"better<{is_max(v)}>(a, b)" if v.op == "argreduce" else ""
    step = step or spell("add" if combine == "fma" else combine, ["a", "b"], v.dtype)
    return f"[](const auto& a, const auto& b) {{ return {step}; }}"


def is_max(v: Value) -> str:
    return "true" if v.attr[0] == "argmax" else "false"


def join_lanes(v: Value, accumulator: str) -> str:
    """The lanes of an accumulator combined."""
    if v.op == "argreduce":
        return f"join_best<{is_max(v)}>({accumulator})"
    return f"join_lanes({combination(v)}, {accumulator})"
