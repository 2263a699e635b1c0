"""Kernels that are right and yet not the interpreter: every inexact step errs within what it states."""

from collections.abc import Callable

import numpy as np

from fusion_ir.arithmetic.conversions import accumulate, round_to
from fusion_ir.core.node import Node
from fusion_ir.ops import OPS, OpKind, kind_of
from fusion_ir.ops.contract import contract_arrays, sums_in_any_order

Override = Callable[[Node, tuple[np.ndarray, ...]], np.ndarray | None]


def other_kernel(seed: int) -> Override:
    """An override that computes as another correct kernel might.

    Sums and products of matrices run in a shuffled order with one total; pointwise functions are up to the stated ulps
    off, in even kernels all to one side within a node.
    """
    rng = np.random.default_rng(seed)

    def override(node: Node, operands: tuple[np.ndarray, ...]) -> np.ndarray | None:
        row = OPS[node.op]
        with np.errstate(all="ignore"):
            if row.kind is OpKind.POINTWISE and row.ulps:
                wide = row.reference(node, *(accumulate(np.asarray(x)) for x in operands))
                off = np.asarray(rng.uniform(-row.ulps, row.ulps, wide.shape if seed % 2 else ()), wide.dtype)
                regular = np.isfinite(wide) & (wide != 0)
                moved = np.where(regular, wide + off * np.spacing(np.abs(wide)), wide)
                return round_to(np.asarray(moved, wide.dtype), node.dtype)
            if node.op in ("sum", "mean") and node.dtype.is_float:
                axes = node.ints("axes")
                kept = [a for a in range(operands[0].ndim) if a not in axes]
                rows = accumulate(operands[0]).transpose((*kept, *axes)).reshape(*node.sizes, -1)
                if not rows.shape[-1]:
                    return None
                total = np.cumsum(rows[..., rng.permutation(rows.shape[-1])], axis=-1, dtype=rows.dtype)[..., -1]
                count = rows.dtype.type(rows.shape[-1])
                return round_to(np.asarray(total / count if node.op == "mean" else total), node.dtype)
            if node.op == "scatter_sum" and node.dtype.is_float:
                axis, order = node.attr("axis", int), rng.permutation(operands[1].size)
                return row.reference(node, np.take(operands[0], order, axis), operands[1][order])
            if kind_of(node) is OpKind.CONTRACT and sums_in_any_order(node):
                return _shuffled(node, operands, rng)
        return None

    return override


def _shuffled(node: Node, operands: tuple[np.ndarray, ...], rng: np.random.Generator) -> np.ndarray:
    """A contraction whose last reduced axis is in another order."""
    moved: list[np.ndarray] = []
    order: np.ndarray | None = None
    for axes, x in zip((node.ints("a_axes"), node.ints("b_axes")), operands, strict=True):
        order = rng.permutation(x.shape[axes[-1]]) if order is None else order
        moved.append(np.take(x, order, axes[-1]))
    return round_to(contract_arrays(node, *moved), node.dtype)
