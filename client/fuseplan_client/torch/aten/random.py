"""Random ops, as far as nothing is drawn: dropout outside of training, and the gradient of dropout.

What draws stays PyTorch's own op, outside of plans: `fuseplan_client.torch.dropout` splits it off.
"""

from collections.abc import Mapping
from typing import Any

import torch

from fuseplan_client.torch.aten.call import Call, Lowering, aten
from fuseplan_client.torch.aten.pointwise import combined
from fuseplan_client.torch.wire import Refused, Tensor


def native_dropout(call: Call, x: Tensor, probability: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """(x, all true) outside of training. Raises Refused where a mask is drawn."""
    if train is None or train:
        raise Refused("draws random numbers")
    return x, call.writer.full(x.shape, True, torch.bool)


def dropout_backward(call: Call, grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    """grad mask scale, rounded after each product."""
    return combined(call, "mul", (combined(call, "mul", (grad, mask)), scale), unrounded=True)


def drawn(call: Call, *_: Any, **__: Any) -> Tensor:
    """Raises Refused: PyTorch's generator is PyTorch's."""
    raise Refused("draws random numbers")


_DRAWN = """bernoulli.default bernoulli.p bernoulli.Tensor rand.default rand_like.default randn.default
randn_like.default randint.default randint.low randint_like.default randint_like.low_dtype randperm.default
normal_functional.default normal.float_float normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor
uniform.default exponential.default geometric.default log_normal.default cauchy.default multinomial.default
poisson.default binomial.default _standard_gamma.default _sample_dirichlet.default random.default random.from
rrelu_with_noise_functional.default""".split()


def _overload(name: str) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(aten, packet), overload)


RANDOM: Mapping[Any, Lowering] = {
    **{_overload(name): drawn for name in _DRAWN},
    aten.native_dropout.default: native_dropout,
    aten.native_dropout_backward.default: dropout_backward,
}
