"""Scale, bias and relu per channel of images, with the channels far apart (NCHW) and side by side (NHWC)."""

import fusion_ir.building as ir
from benchmarks.corpus.case import Case, Inputs
from benchmarks.corpus.pytorch import Tensor, torch
from benchmarks.corpus.sizes import IMAGES, plain
from fusion_ir.core.graph import OutputSpec
from fusion_ir.core.node import Node


def _scale_bias_relu(x: Node, scale: Node, bias: Node) -> Node:
    scale, bias = (ir.reshape(v, [-1, 1, 1]) for v in (scale, bias))
    return ir.relu(ir.add(ir.mul(x, scale), bias))


def scale_bias_relu_nchw(inputs: Inputs, batch: int, channels: int, height: int, width: int) -> Node:
    x = inputs(batch, channels, height, width)
    return _scale_bias_relu(x, inputs(channels), inputs(channels))


def scale_bias_relu_nhwc(inputs: Inputs, batch: int, channels: int, height: int, width: int) -> OutputSpec:
    """Input and output in PyTorch's memory format channels_last."""
    strides = (height * width * channels, 1, width * channels, channels)
    x = inputs(batch, channels, height, width, strides=strides)
    return OutputSpec(_scale_bias_relu(x, inputs(channels), inputs(channels)), strides)


def torch_scale_bias_relu(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(x * scale[:, None, None] + bias[:, None, None])


_SIZES = {"batch": 32, "channels": 128, "height": 64, "width": 64}

SCALING = (
    Case(
        name="scale_bias_relu_nchw", kind="memory", build=scale_bias_relu_nchw, torch=torch_scale_bias_relu,
        sizes=_SIZES, small=plain(IMAGES),
    ),
    Case(
        name="scale_bias_relu_nhwc", kind="memory", build=scale_bias_relu_nhwc, torch=torch_scale_bias_relu,
        sizes=_SIZES, small=plain(IMAGES),
    ),
)  # fmt: skip
