"""Groups that add up 16-bit terms, computed so that each sum is rounded once.

PyTorch's kernels for the gradient of an embedding and for `index_put` with sums round after every term of 16 bits: of
terms that have their signs in common, the last of a thousand are lost (off by 0.13 as a whole for bf16 with a mean of
one deviation, PyTorch 2.13). Plans add in f32, so they are judged by this where they do not agree with the kernels."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from fuseplan_client.torch.partition import copied
from fuseplan_client.torch.tolerant import tolerant

aten = torch.ops.aten

# Operands that hold terms, by op.
TERMS: Mapping[Any, Sequence[int]] = {
    aten.embedding_dense_backward.default: (0,),
    aten.index_put.default: (0, 2),
    aten._unsafe_index_put.default: (0, 2),
}
NARROW = (torch.bfloat16, torch.float16)


def rounded_once(module: GraphModule) -> Callable[[Sequence[Any]], Any] | None:
    """The group, on a call's arguments, with sums that are rounded once; None where it has none that are not."""
    if not any(_is_narrow(node) for node in module.graph.nodes):
        return None

    def run(args: Sequence[Any]) -> Any:
        with torch.no_grad():
            return _InF32(tolerant(GraphModule(module, copied(module.graph)))).run(*args)

    return run


def _is_narrow(node: Node) -> bool:
    value = node.meta.get("val")
    return node.target in TERMS and isinstance(value, torch.Tensor) and value.dtype in NARROW


class _InF32(Interpreter):
    """Runs a graph with its sums of 16-bit terms in f32."""

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of an op."""
        places = TERMS.get(target, ())
        if not places or args[places[0]].dtype not in NARROW:
            return super().call_function(target, args, kwargs)
        wide = [value.float() if i in places else value for i, value in enumerate(args)]
        return super().call_function(target, tuple(wide), kwargs).to(args[places[0]].dtype)
