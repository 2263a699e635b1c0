"""A call of a library that a step of a plan is instead of a kernel: everything that it takes to make it.

Its JSON stands where other steps have machine code: as the step's binary, named by its sha256. Whoever runs a plan
makes the call, and where there is no such library or no such device, computes what it says.
"""

from typing import Literal

from pydantic import Field

from fusion_ir.records.base import Record

Compute = Literal["f32", "tf32", "f64"]


class CallMatrix(Record):
    """One matrix of the call, in memory.

    tensor: number of the step's argument. offset, leading, batch_stride: in elements of `dtype`; rows of `leading`, or
    columns where it lies `turned`, with unit stride along them. alignment_bytes: of every address that a call of the
    step gets.
    """

    tensor: int = Field(ge=0)
    offset: int = Field(ge=0)
    dtype: str
    turned: bool = False
    leading: int = Field(ge=1)
    batch_stride: int = Field(default=0, ge=0)
    alignment_bytes: int = Field(ge=1)


class CallVector(Record):
    """The bias: consecutive elements, one for each column of the result, shared by all products of a batch."""

    tensor: int = Field(ge=0)
    offset: int = Field(ge=0)
    dtype: str
    alignment_bytes: int = Field(ge=1)


class CallLoop(Record):
    """A loop of `extent` calls. a, b, c, d, bias: elements by which each tensor's start moves from call to call; 0: not
    at all."""

    extent: int = Field(ge=1)
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    bias: int = 0


class LibraryCall(Record):
    """D[m, n] = alpha A[m, k] B[k, n] + beta C[m, n] + bias[n], rounded once, for each of a batch.

    compute: the dtype in which products are summed; tf32 also rounds operands, which only numerics class `approximate`
    allows. c: has the layout and the dtype of d. bias: has the dtype of d. algorithm: position, from 0, in the
    library's own list for this problem, the best first, with no more than workspace_bytes of scratch, which is the
    step's last argument.
    """

    library: Literal["cublaslt"] = "cublaslt"
    m: int = Field(ge=1)
    n: int = Field(ge=1)
    k: int = Field(ge=1)
    batch: int = Field(default=1, ge=1)
    compute: Compute
    alpha: float = 1.0
    beta: float = 0.0
    a: CallMatrix
    b: CallMatrix
    c: CallMatrix | None = None
    d: CallMatrix
    bias: CallVector | None = None
    loops: tuple[CallLoop, ...] = ()
    algorithm: int = Field(default=0, ge=0)
    workspace_bytes: int = Field(default=0, ge=0)

    def text(self) -> str:
        """The call as JSON: equal calls have equal texts."""
        return self.model_dump_json()
