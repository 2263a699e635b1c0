"""Cross entropy of logits [tokens, classes], forward and backward."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import F, Tensor, Tensors, torch
from fusion_ir.core.node import Node
from fusion_ir.dtype import i64

_SMALL = (
    {"tokens": 1, "classes": 1},
    {"tokens": 3, "classes": 17},
    {"tokens": 17, "classes": 259},
    {"tokens": 64, "classes": 33},
)


def cross_entropy(inputs: Inputs, tokens: int, classes: int) -> tuple[Node, Node]:
    """The loss of every token, and their mean."""
    logits, targets = inputs(tokens, classes), inputs(tokens, dtype=i64, domain=(0, classes))
    losses = ir.cross_entropy(logits, targets, "none")
    return losses, ir.mean(losses)


def torch_cross_entropy(logits: Tensor, targets: Tensor) -> Tensors:
    losses = F.cross_entropy(logits, targets, reduction="none")
    return losses, losses.mean()


def cross_entropy_backward(inputs: Inputs, tokens: int, classes: int) -> Node:
    """Gradient of the logits, from that of the mean loss and the forward pass's log-softmax. The weights that it summed
    are ones: their sum, which it saved for PyTorch, is the number of tokens."""
    grad = inputs(domain=(0.5, 1.5))
    out = inputs(tokens, classes, domain=(-8.0, 0.0))
    targets = inputs(tokens, dtype=i64, domain=(0, classes))
    inputs(domain=(tokens, tokens))  # the sum of weights
    share = ir.mul(ir.cast(grad, inputs.wide), 1.0 / tokens)
    hit = ir.eq(ir.iota([tokens, classes], 1), ir.unsqueeze(targets, 1))
    probability = ir.exp(ir.cast(out, inputs.wide))
    dx = ir.mul(ir.sub(probability, ir.where(hit, ir.full((), 1.0, inputs.wide), 0.0)), share)
    return ir.cast(dx, inputs.dtype)


def torch_cross_entropy_backward(grad: Tensor, out: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """The ops that autograd calls: the gradient of the log-softmax is a tensor of zeros and one entry a row."""
    inner = torch.ops.aten.nll_loss_backward(grad, out, targets, None, 1, -100, weight)
    return torch.ops.aten._log_softmax_backward_data(inner, out, 1, out.dtype)


LOSSES = (
    Case(
        name="cross_entropy", kind="memory", build=cross_entropy, torch=torch_cross_entropy,
        sizes={"tokens": 4096, "classes": 8192}, small=_SMALL,
    ),
    Case(
        name="cross_entropy_backward", kind="memory", build=cross_entropy_backward, torch=torch_cross_entropy_backward,
        sizes={"tokens": 2048, "classes": 8192}, small=_SMALL,
    ),
)  # fmt: skip
