"""Family `attention`: a product of matrices whose rows are reduced, with whatever leads to that and follows.

Softmax of scores, and all of attention: contract, pointwise ops, reductions of whole rows, pointwise ops, then the
outputs or a second contraction over the columns. Nothing of the size of the rows is stored that is no output. On CUDA
rows stay in registers (`attention_cuda`), on a CPU in the caches (`attention_cpu`).
"""

from codegen.families import attention_cpu, attention_cuda
from codegen.kernel import Kernel, Reject
from codegen.schedule import Choices
from fusion_ir.core.graph import Graph
from fusion_ir.records import Device


class Attention:
    """See the module."""

    name = "attention"

    def accepts(self, segment: Graph, device: Device) -> Reject | None:
        of = attention_cpu if device.target == "cpu" else attention_cuda
        return self.fits(segment, device) or of.lowered(segment, device)

    def fits(self, segment: Graph, device: Device) -> Reject | None:
        of = attention_cpu if device.target == "cpu" else attention_cuda
        return of.fits(segment, device)

    def space(self, segment: Graph, device: Device) -> tuple[str, ...]:
        of = attention_cpu if device.target == "cpu" else attention_cuda
        return of.space(segment, device)

    def choices(self, segment: Graph, device: Device) -> Choices:
        of = attention_cpu if device.target == "cpu" else attention_cuda
        return of.choices(segment, device)

    def emit(self, segment: Graph, schedule: str, device: Device) -> Kernel:
        of = attention_cpu if device.target == "cpu" else attention_cuda
        return of.emit(segment, schedule, device)
