"""A contraction with its epilogue -> one described call of a library of the GPU (`fusion_ir.records.LibraryCall`).

contract(x[8, 32, 64], w[48, 64]) + b[48]    ->    256 x 48, 64 deep; B turned, leading 64; bias b
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, prod

from codegen.gemm.call import GemmCall, choose_call, extent
from codegen.gemm.dims import Dim, Matrix, contraction, long_contract, stored_product
from codegen.gemm.epilogue import Added, Epilogue, epilogue_of
from codegen.kernel import Reject
from fusion_ir.core.graph import Graph
from fusion_ir.dtype import DType, bf16, f16, f32, f64
from fusion_ir.records import CallLoop, CallMatrix, CallVector, Compute, LibraryCall

MOST_CALLS = 64  # of one step; beyond, launching costs more than computing
MOST_ALIGNMENT = 256
OUTPUT_ALIGNMENT = 64
# (operands, result): products are summed in f32, those of f64 in f64
TYPES = {(f16, f16), (f16, f32), (bf16, bf16), (bf16, f32), (f32, f32), (f64, f64)}


@dataclass(frozen=True)
class _Problem:
    """A call, the axis of it that is a batch, and the loops that are left."""

    graph: Graph
    call: GemmCall
    epilogue: Epilogue
    batch: Dim | None
    loops: tuple[Dim, ...]
    result: DType

    def alignment(self, at: Matrix, dtype: DType, steps: Sequence[int]) -> int:
        """Bytes that divide every address that calls of the step get."""
        known = self.graph.inputs[at.tensor].alignment_bytes if at.tensor < len(self.graph.inputs) else OUTPUT_ALIGNMENT
        found = gcd(known, MOST_ALIGNMENT, at.offset * dtype.bytes, *(s * dtype.bytes for s in steps))
        return found & -found


def library_call(graph: Graph) -> LibraryCall | Reject:
    """The call of cuBLASLt that computes a graph, with algorithm 0 and no workspace, or why there is none."""
    node = long_contract(graph)
    if isinstance(node, Reject):
        return node
    if not node.dtype.is_float:
        return Reject(f"the library multiplies floats, not {node.args[0].dtype}")
    epilogue = epilogue_of(graph, node)
    if isinstance(epilogue, Reject):
        return epilogue
    operands, result = {arg.dtype for arg in node.args}, graph.outputs[0].node.dtype
    if len(operands) != 1 or (*operands, result) not in TYPES:
        return Reject(f"the library multiplies no {' by '.join(str(a.dtype) for a in node.args)} to {result}")
    digits = stored_product(epilogue.graph, node)
    if isinstance(digits, Reject):
        return digits
    axes = contraction(epilogue.graph, node, digits, others=[a.digits for a in epilogue.added])
    call = axes if isinstance(axes, Reject) else choose_call(axes)
    if isinstance(call, Reject):
        return call
    if any(d.summed for d in call.loops):
        return Reject("several library calls would sum up one element")
    biases = [i for i in range(len(epilogue.added)) if _is_bias(call, i)]
    batched = [d for d in call.loops if not any(d.others[i] for i in biases)]
    batch = max(batched, key=lambda d: d.extent, default=None)
    loops = tuple(d for d in call.loops if d is not batch)
    if prod(d.extent for d in loops) > MOST_CALLS:
        return Reject(f"takes {prod(d.extent for d in loops)} library calls, more than {MOST_CALLS}")
    return _described(_Problem(graph, call, epilogue, batch, loops, result))


def _described(p: _Problem) -> LibraryCall | Reject:
    call, of, batch = p.call, p.call.of, p.batch
    operand = p.graph.inputs[of.a.tensor].dtype
    addend: CallMatrix | None = None
    bias: CallVector | None = None
    beta, loop_c, loop_bias = 0.0, [0] * len(p.loops), [0] * len(p.loops)
    for i, added in enumerate(p.epilogue.added):
        steps = [d.others[i] for d in p.loops]
        if added.dtype != p.result:
            return Reject(f"adds {added.dtype} to a result of {p.result}; the library takes equal types alone")
        if _is_bias(call, i) and added.factor == 1.0 and bias is None:
            aligned = p.alignment(added.matrix, added.dtype, steps)
            bias = CallVector(
                tensor=added.matrix.tensor, offset=added.matrix.offset, dtype=added.dtype.name, alignment_bytes=aligned
            )
            loop_bias = steps
        elif addend is None and (leading := _rows(call, i)) is not None:
            addend = _matrix(p, added.matrix, added.dtype, False, leading, batch.others[i] if batch else 0, steps)
            beta, loop_c = added.factor, steps
        else:
            return Reject(_unfit(call, added, i))
    stored = Matrix(len(p.graph.inputs), 0)
    compute: Compute = "f64" if of.dtype == f64 else "f32"
    return LibraryCall(
        m=extent(call.m),
        n=extent(call.n),
        k=call.k.extent,
        batch=batch.extent if batch else 1,
        compute=compute,
        alpha=p.epilogue.scale,
        beta=beta,
        a=_matrix(p, of.a, operand, call.a_turned, call.lda, batch.a if batch else 0, [d.a for d in p.loops]),
        b=_matrix(p, of.b, operand, call.b_turned, call.ldb, batch.b if batch else 0, [d.b for d in p.loops]),
        c=addend,
        d=_matrix(p, stored, p.result, False, call.ldc, batch.c if batch else 0, [d.c for d in p.loops]),
        bias=bias,
        loops=tuple(
            CallLoop(extent=d.extent, a=d.a, b=d.b, c=c, d=d.c, bias=v)
            for d, c, v in zip(p.loops, loop_c, loop_bias, strict=True)
        ),
    )


def _matrix(
    p: _Problem, at: Matrix, dtype: DType, turned: bool, leading: int, batch_stride: int, steps: Sequence[int]
) -> CallMatrix:
    return CallMatrix(
        tensor=at.tensor,
        offset=at.offset,
        dtype=dtype.name,
        turned=turned,
        leading=leading,
        batch_stride=batch_stride,
        alignment_bytes=p.alignment(at, dtype, [batch_stride, *steps]),
    )


def _is_bias(call: GemmCall, i: int) -> bool:
    """Whether the i-th tensor that is added has consecutive elements along the columns and does not vary with rows."""
    return call.n is not None and call.n.others[i] == 1 and (call.m is None or call.m.others[i] == 0)


def _rows(call: GemmCall, i: int) -> int | None:
    """Elements from row to row of the i-th tensor that is added; None where it is no matrix like the result."""
    if call.n is not None and call.n.others[i] != 1:
        return None
    step = call.m.others[i] if call.m is not None else extent(call.n)
    return step if step >= extent(call.n) else None


def _unfit(call: GemmCall, added: Added, i: int) -> str:
    m, n = (d.others[i] if d else 0 for d in (call.m, call.n))
    return (
        f"adds {added.factor:g} * in{added.matrix.tensor} with strides {m} and {n} along rows and columns of the "
        "product; the library adds one matrix laid out as the result is, and one vector along its columns"
    )
