"""The JSON Schema of the wire format, generated from the models and from the signatures of its ops.

schema/graph.schema.json is what `python -m fusion_ir.formats.json.schema` prints; a test compares the two.
"""

import json
from pathlib import Path
from typing import Any

from fusion_ir.core.aliases import DTYPE_ALIASES, OP_ALIASES
from fusion_ir.core.limits import LIMITS
from fusion_ir.dtype import DTYPES
from fusion_ir.formats.json.wire import WireGraph
from fusion_ir.formats.json.wire_ops import TENSOR_KINDS, WIRE_OPS, attribute_name
from fusion_ir.formats.signature import Kind, Parameter, parameters
from fusion_ir.ops import OPS
from fusion_ir.ops.row import AttrKind

SCHEMA_PATH = Path(__file__).parents[1] / "schema" / "graph.schema.json"

_INTEGER = {"type": "integer"}
_INTEGERS = {"type": "array", "items": _INTEGER}
_BITS = {
    "type": "string",
    "pattern": "^[a-z0-9]+:0x[0-9a-f]+$",
    "description": "a constant by its bits: f32:0x3f800000",
}
_DEFINITIONS: dict[str, Any] = {
    "Axes": {"anyOf": [_INTEGER, _INTEGERS]},
    "DType": {"enum": [*DTYPES, *DTYPE_ALIASES]},
    "Integers": _INTEGERS,
    "Number": {"anyOf": [{"type": "number"}, {"type": "boolean"}, _BITS]},
}

_KIND_SCHEMAS: dict[Kind | AttrKind, dict[str, Any]] = {
    "int": _INTEGER,
    "ints": {"$ref": "#/$defs/Integers"},
    "axis": _INTEGER,
    "axes": {"$ref": "#/$defs/Axes"},
    "shape": {"$ref": "#/$defs/Integers"},
    "sizes": {"$ref": "#/$defs/Integers"},
    "bool": {"type": "boolean"},
    "str": {"type": "string"},
    "dtype": {"$ref": "#/$defs/DType"},
    "scalar": {"$ref": "#/$defs/Number"},
    "number": {"$ref": "#/$defs/Number"},
    "float": {"$ref": "#/$defs/Number"},
    "operand": {"$ref": "#/$defs/Number"},
}


def graph_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). Names that must exist, cycles and the ops' own rules are beyond it."""
    schema = WireGraph.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    names = sorted({*OPS, *WIRE_OPS})
    schema["$defs"] |= _DEFINITIONS
    node = schema["$defs"]["WireNode"]
    node["properties"]["op"] = {"enum": [*names, *OP_ALIASES], "title": "Op"}
    node["allOf"] = [
        {"if": {"properties": {"op": _called(name)}}, "then": {"properties": _op_schema(name)}} for name in names
    ]
    schema["$defs"]["WireInput"]["properties"]["dtype"] = {"$ref": "#/$defs/DType"}
    return schema


def _called(name: str) -> dict[str, Any]:
    """The schema of an op's name or one of its aliases."""
    aliases = [alias for alias, meant in OP_ALIASES.items() if meant == name]
    return {"enum": [name, *aliases]} if aliases else {"const": name}


def _op_schema(name: str) -> dict[str, Any]:
    """The schema of the args and attrs of one op, which may be in its strict or in its loose form."""
    attrs: dict[str, Any] = {}
    most = 0
    if name in OPS:
        row = OPS[name]
        most = max(row.arity) if isinstance(row.arity, tuple) else row.arity
        attrs |= {attr: _KIND_SCHEMAS[kind] for attr, kind in row.attrs.items()}
    if name in WIRE_OPS:
        for parameter in parameters(WIRE_OPS[name]):
            most += 1 if parameter.kind in TENSOR_KINDS and name not in OPS else 0
            most = LIMITS.operands if parameter.kind == "tensors" else most
            if parameter.kind not in ("tensor", "tensors"):
                attrs[attribute_name(parameter)] = _parameter_schema(parameter)
    return {
        "args": {"maxItems": most},
        "attrs": {"properties": dict(sorted(attrs.items())), "additionalProperties": False},
    }


def _parameter_schema(parameter: Parameter) -> dict[str, Any]:
    schema = {"enum": list(parameter.choices)} if parameter.choices else _KIND_SCHEMAS[parameter.kind]
    return {"anyOf": [schema, {"type": "null"}]} if parameter.nullable else schema


def schema_text() -> str:
    """The schema as the file holds it."""
    return json.dumps(graph_schema(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
