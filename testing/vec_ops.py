"""The pointwise rows of OPS as functions over the vocabulary, with operands to try them on."""

from collections.abc import Iterator

import numpy as np

from fusion_ir.dtype import DTYPES, DType
from fusion_ir.ops import OPS, Op, OpKind, RuleError, make, make_input
from testing.tensors import spec
from testing.vec_harness import COMPUTE, Function, domain, random_bits, specials

EXACT = tuple(op for op in OPS.values() if op.kind is OpKind.POINTWISE and op.ulps == 0 and op.name != "cast")
INEXACT = tuple(op for op in OPS.values() if op.kind is OpKind.POINTWISE and op.ulps > 0)


def operand_types(op: Op, dtype: DType) -> tuple[DType, ...]:
    """dtype for each operand, but a condition is a bool."""
    assert isinstance(op.arity, int)
    types = [dtype] * op.arity
    if op.name == "where":
        types[0] = DTYPES["bool"]
    return tuple(types)


def result_type(op: Op, operands: tuple[DType, ...]) -> DType | None:
    """The dtype of the op's result by the rules of its row; None where they reject these operands."""
    try:
        return make(op.name, [make_input(i, spec((4,), t)) for i, t in enumerate(operands)]).dtype
    except RuleError:
        return None


def functions(ops: tuple[Op, ...], width: int) -> Iterator[tuple[Op, Function]]:
    """Each op for each compute type that it takes."""
    for op in ops:
        for dtype in COMPUTE:
            operands = operand_types(op, dtype)
            result = result_type(op, operands)
            if result is not None:
                yield op, Function(f"{op.name}_{dtype}_{width}", op.cpp, operands, result, width)


def operands_for(op: Op, types: tuple[DType, ...], seed: int, count: int = 3000) -> list[np.ndarray]:
    """Special values, all against all; random bits; values of the op's domain."""
    rng = np.random.default_rng(seed)
    special = [specials(t) for t in types]
    if len(types) == 2:
        special = [a.ravel() for a in np.meshgrid(*special)]
    elif len(types) == 3:
        special = [rng.choice(s, count) for s in special]
    return [
        np.concatenate([s, random_bits(t, count, rng), domain(t, *op.domain, count, rng)])
        for s, t in zip(special, types, strict=True)
    ]


def math_operands(op: Op, dtype: DType, seed: int, count: int) -> list[np.ndarray]:
    """Operands for a function that is not exact: `operands_for`, all magnitudes, the whole range of exponentials, and
    neighbourhoods of 0, 1 and multiples of pi/2."""
    rng = np.random.default_rng(seed)
    parts = [operands_for(op, (dtype,) * op.arity, seed, count)]  # type: ignore[operator]
    info = np.finfo(dtype.numpy)
    for _ in range(2):
        signs = [rng.choice([-1.0, 1.0], count) for _ in parts[0]]
        parts.append([s * np.exp2(rng.uniform(info.minexp - info.nmant, info.maxexp, count)) for s in signs])
        parts.append([s * np.exp2(rng.uniform(-info.nmant - 2, 10, count)) for s in signs])
        parts.append([1 + s * np.exp2(rng.uniform(-info.nmant, -1, count)) for s in signs])
        parts.append([rng.uniform(-1.1, 1.1, count) * info.maxexp for _ in signs])
        parts.append([rng.integers(-(2**20), 2**20, count) * np.pi / 2 for _ in signs])
        parts.append([rng.uniform(-4, 4, count) for _ in signs])
    with np.errstate(all="ignore"):
        return [np.concatenate(column).astype(dtype.numpy) for column in zip(*parts, strict=True)]
