"""PyTorch's aten graphs as graphs of the wire format: `export` one, `partition` another into what plans can compute.

Needs PyTorch, which `import fuseplan_client` alone does not.
"""

from fuseplan_client.torch import artifacts  # noqa: F401  PyTorch knows of them before it loads any
from fuseplan_client.torch.export import Exported, Output, Read, export
from fuseplan_client.torch.partition import Partitioned, partition
from fuseplan_client.torch.support import Support, Verdict
from fuseplan_client.torch.wire import Refused

__all__ = ["Exported", "Output", "Partitioned", "Read", "Refused", "Support", "Verdict", "export", "partition"]
