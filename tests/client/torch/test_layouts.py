"""Convolutions on channels-last tensors: what PyTorch gives, as it lies; and nothing copied in between."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402  PyTorch is an extra
from functorch.compile import make_boxed_func
from fuseplan_client.torch import layouts
from fuseplan_client.torch.layouts import CONVOLUTIONS, FREE, channels_last
from fuseplan_client.torch.symbols import is_symbolic
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Interpreter, Node
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
LAST = torch.channels_last


def image(*sizes: int, dtype: Any = torch.float32, last: bool = True) -> Any:
    made = torch.randn(sizes, dtype=dtype)
    return made.contiguous(memory_format=LAST) if last else made


def bn(*more: Any) -> tuple[Any, ...]:
    return (torch.ones(8), torch.zeros(8), torch.zeros(8), torch.ones(8), *more, 0.1, 1e-5)


X = (2, 8, 6, 6)
# Of every op that keeps layouts, and some pointwise ones: what it is called with.
CALLS: dict[Any, Callable[[], tuple[Any, ...]]] = {
    aten.alias.default: lambda: (image(*X),),
    aten.avg_pool2d.default: lambda: (image(*X), [2, 2]),
    aten.clone.default: lambda: (image(*X),),
    aten.detach.default: lambda: (image(*X),),
    aten.max_pool2d_with_indices.default: lambda: (image(*X), [3, 3], [2, 2], [1, 1]),
    aten.mean.dim: lambda: (image(*X), [2, 3], True),
    aten.native_batch_norm.default: lambda: (image(*X), *bn(False)),
    aten.native_batch_norm_backward.default: lambda: (
        image(*X), image(*X), torch.ones(8), torch.zeros(8), torch.ones(8), torch.zeros(8), torch.ones(8), True, 1e-5,
        [True, True, True],
    ),
    aten._native_batch_norm_legit.default: lambda: (image(*X), *bn(True)),
    aten._native_batch_norm_legit_functional.default: lambda: (image(*X), *bn(True)),
    aten._native_batch_norm_legit_no_training.default: lambda: (image(*X), *bn()),
    aten._to_copy.default: lambda: (image(*X),),
    aten.sum.dim_IntList: lambda: (image(*X), [0, 2, 3]),
    aten.threshold_backward.default: lambda: (image(*X), image(*X), 0),
    aten.maximum.default: lambda: (image(*X), image(*X)),
    aten.minimum.default: lambda: (image(*X), image(*X)),
    aten.pow.Tensor_Scalar: lambda: (image(*X), 2.0),
    aten.where.self: lambda: (image(*X) > 0, image(*X), image(*X)),
    aten.convolution.default: lambda: (
        image(*X), image(8, 8, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
    ),
    aten.convolution_backward.default: lambda: (
        image(*X), image(*X), image(8, 8, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False],
    ),
}  # fmt: skip
MORE = {"clamp": (-1.0, 1.0), "clamp_max": (1.0,), "clamp_min": (0.0,), "threshold_backward": (0.0,)}
MORE |= {"hardtanh_backward": (-1.0, 1.0), "leaky_relu_backward": (0.1, False)}


def one(name: str) -> Callable[[], tuple[Any, ...]]:
    return lambda: (*(image(*X) for _ in range(2 if name.endswith("_backward") else 1)), *MORE.get(name, ()))


CALLS |= {getattr(aten, name).default: one(name) for name in layouts.POINTWISE.split()}
CALLS |= {getattr(aten, name).Tensor: lambda: (image(*X), image(*X)) for name in layouts.OF_TWO.split()}
CALLS |= {getattr(aten, name).Scalar: lambda: (image(*X), 2.0) for name in layouts.OF_TWO.split()}
OF_TWO = [getattr(aten, name).Tensor for name in layouts.OF_TWO.split()] + [aten.maximum.default, aten.minimum.default]
BROADCAST: tuple[tuple[int, ...], ...] = (
    (), (1,), (6,), (6, 6), (8, 1, 1), (8, 6, 6), (1, 8, 1, 1), (2, 1, 6, 6), (1, 8, 6, 6), (2, 8, 1, 1),
    (3, 2, 8, 6, 6),
)  # fmt: skip


def test_there_is_a_call_of_every_op_that_keeps_layouts() -> None:
    assert {op for op in FREE if isinstance(op, torch._ops.OpOverload)} <= set(CALLS)
    assert set(CONVOLUTIONS) <= set(CALLS)


@pytest.mark.parametrize("op", CALLS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_results_lie_as_fake_tensors_say(op: Any, dtype: Any) -> None:
    def cast(v: Any) -> Any:
        return v.to(dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() else v

    lies_as_said(op, tree_map(cast, CALLS[op]()))


@pytest.mark.parametrize("op", OF_TWO, ids=str)
@pytest.mark.parametrize("sizes", BROADCAST, ids=str)
def test_broadcast_operands_are_no_exception(op: Any, sizes: tuple[int, ...]) -> None:
    for other in (torch.randn(sizes), image(*sizes) if len(sizes) == 4 else torch.randn(sizes)):
        lies_as_said(op, (image(*X), other))
        lies_as_said(op, (other, image(*X)))
        lies_as_said(aten.where.self, (image(*X) > 0, other, image(*X)))
        lies_as_said(aten.where.self, (other > 0, image(*X), other))


def lies_as_said(op: Any, args: tuple[Any, ...]) -> None:
    mode = FakeTensorMode()
    faked = tree_map(lambda v: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v, args)
    with mode:
        expected = op(*faked)
    found = op(*args)
    for one, other in zip(tree_leaves((found,)), tree_leaves((expected,)), strict=True):
        if isinstance(one, torch.Tensor):
            assert (one.shape, layouts.steps(one)) == (other.shape, layouts.steps(other))


class Turned:
    """A function compiled with `channels_last`, run by PyTorch's ops. graphs: forward and backward, or inference."""

    def __init__(self, function: Callable[..., Any], dynamic: bool = False) -> None:
        self.graphs: list[GraphModule] = []
        torch._dynamo.reset()
        backend = aot_autograd(
            fw_compiler=self._kept,
            inference_compiler=lambda g, _: self._kept(channels_last(g), _),
            partition_fn=lambda j, i, **how: min_cut_rematerialization_partition(channels_last(j), i, **how),
        )
        self.call = torch.compile(function, backend=backend, dynamic=dynamic)

    def _kept(self, graph: GraphModule, _: Any) -> Any:
        self.graphs.append(graph)
        return make_boxed_func(lambda *args: Checked(graph).run(*args))

    @property
    def clones(self) -> int:
        return sum(n.target is aten.clone.default for g in self.graphs for n in g.graph.nodes)


class Checked(Interpreter):
    """Runs a graph, whose values lie as its nodes say."""

    def run_node(self, n: Node) -> Any:
        found = super().run_node(n)
        if n.op == "call_function" and isinstance(found, torch.Tensor) and not is_symbolic(n.meta["val"]):
            assert layouts.steps(found) == layouts.steps(n.meta["val"]), n
        if n.target in CONVOLUTIONS and not n.args[layouts.TRANSPOSED[n.target]]:
            for i in CONVOLUTIONS[n.target]:
                value = self.env[n.args[i]]
                assert not layouts._is_slower(n) or value.is_contiguous(memory_format=LAST), n
        return found


class Block(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.one, self.two = (nn.Conv2d(c, c, 3, padding=1, bias=False) for _ in range(2))
        self.norm_one, self.norm_two = nn.BatchNorm2d(c), nn.BatchNorm2d(c)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.norm_one(self.one(x)))
        return F.relu(self.norm_two(self.two(h)) + x)


class Net(nn.Module):
    """Convolutions with whatever lies between them in networks, drawn at random, and a product behind."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        c = rng.choice((8, 12, 16))
        layers: list[nn.Module] = [nn.Conv2d(3, c, 3, padding=1)]
        makers: Sequence[Callable[[], nn.Module]] = (
            lambda: Block(c),
            lambda: nn.Conv2d(c, c, 3, padding=1, groups=c),
            lambda: nn.Conv2d(c, c, 1),
            lambda: nn.Conv2d(c, c, 3, padding=1, stride=rng.choice((1, 2))),
            lambda: nn.ConvTranspose2d(c, c, 3, padding=1),
            lambda: nn.MaxPool2d(2),
            lambda: nn.AvgPool2d(2),
            lambda: nn.GroupNorm(2, c),
            lambda: nn.BatchNorm2d(c),
            lambda: rng.choice((nn.ReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Sigmoid))(),
            lambda: nn.Upsample(scale_factor=2),
            lambda: Wide(c),
            lambda: Views(),
        )
        layers += [rng.choice(makers)() for _ in range(rng.randint(1, 6))]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(c, 5)
        self.flat = rng.random() < 0.5

    def forward(self, x: Any) -> Any:
        h = self.body(x)
        pooled = F.adaptive_avg_pool2d(h, 1).flatten(1) if self.flat else h.mean((2, 3))
        return self.head(pooled), h


class Wide(nn.Module):
    def __init__(self, c: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(c, c, 1), nn.Conv2d(2 * c, c, 1)

    def forward(self, x: Any) -> Any:
        return self.two(torch.cat([self.one(x), x], 1))


class Views(nn.Module):
    """Needs its input as it was: a view of it, and one by strides."""

    def forward(self, x: Any) -> Any:
        n, c, h, w = x.shape
        rolled = x.view(n, c, h * w).roll(1, -1).view(n, c, h, w)
        return rolled + torch.as_strided(x, x.shape, x.stride())


def agree(found: Any, expected: Any) -> None:
    """In f32. Of a bias before a normalization the gradient is 0: what is left of sums of a thousand terms, 0.004."""
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=2e-2, check_stride=True)


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("kind", ["train", "eval", "no_grad"])
@pytest.mark.sweep(0.4)
def test_networks_give_what_pytorch_gives(seed: int, kind: str) -> None:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    net = Net(rng).train(kind == "train")
    x = torch.randn(2, 3, 24, 24)
    x = x.contiguous(memory_format=LAST) if rng.random() < 0.2 else x
    state = {k: v.clone() for k, v in net.state_dict().items()}
    sides = []
    turned = Turned(net)
    for call in (turned.call, net):
        net.load_state_dict(state)
        net.zero_grad()
        given = x.clone().requires_grad_(kind != "no_grad")
        with torch.set_grad_enabled(kind != "no_grad"):
            out = call(given)
        if kind != "no_grad":
            (out[0].square().sum() + out[1].sin().sum()).backward()
        buffers = [b.clone() for b in net.buffers()]
        sides.append(
            [*out, *buffers, *([given.grad, *(p.grad for p in net.parameters())] if kind != "no_grad" else [])]
        )
    for found, expected in zip(*sides, strict=True):
        if expected is not None:
            agree(found, expected)
    assert any(n.target in CONVOLUTIONS for g in turned.graphs for n in g.graph.nodes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_block_copies_at_its_ends_alone(dtype: Any) -> None:
    """Input and weights are turned, the result is turned back; in training gradients are, too."""
    net = Block(32).to(dtype)
    x = torch.randn(2, 32, 24, 24, dtype=dtype)
    turned = Turned(net.eval())
    with torch.no_grad():
        found = turned.call(x)
        torch.testing.assert_close(found, net(x), check_stride=True)
    assert turned.clones == 4
    turned = Turned(net.train())
    turned.call(x.clone().requires_grad_()).sum().backward()
    forward, backward = ([n for n in g.graph.nodes if n.target is aten.clone.default] for g in turned.graphs)
    assert len(forward) <= 4
    assert len(backward) <= 6, "the gradient that comes, those of input and weights, and weights that are turned again"


class Permuted(nn.Module):
    """Values whose axes lie in another order than that of images, or of channels last."""

    def __init__(self, c: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x: Any) -> Any:
        n, c, h, w = x.shape
        q = (x * 2).view(n, h, c, w).transpose(1, 2) * 1.0
        p = F.relu((x + 1).permute(0, 2, 3, 1).reshape(n, w, h, c).permute(0, 3, 2, 1))
        return q + self.one(q), self.one(p) + p, torch.logaddexp(torch.tensor(0.0), self.one(x)).flatten(1)


@pytest.mark.parametrize("grad", [False, True])
def test_any_order_of_axes_is_restored(grad: bool) -> None:
    net = Permuted(16)
    x = torch.randn(2, 16, 28, 20)
    sides = []
    turned = Turned(net)
    for call in (turned.call, net):
        given = x.clone().requires_grad_(grad)
        with torch.set_grad_enabled(grad):
            out = call(given)
        if grad:
            net.zero_grad()
            sum(o.sin().sum() for o in out).backward()
        sides.append([*out, *([given.grad, *(p.grad for p in net.parameters())] if grad else [])])
    for found, expected in zip(*sides, strict=True):
        agree(found, expected)
    assert turned.clones


UNTOUCHED: dict[str, tuple[nn.Module, tuple[int, ...], dict[str, Any]]] = {
    "lies so": (nn.Conv2d(8, 8, 3).to(memory_format=LAST), (2, 8, 16, 16), {"last": True}),
    "small": (nn.Conv2d(2, 2, 3), (1, 2, 8, 8), {}),
    "large weights": (nn.Conv2d(64, 64, 3, padding=1), (1, 64, 16, 16), {}),
    "large weights in bf16": (nn.Conv2d(64, 64, 3).bfloat16(), (1, 64, 12, 12), {"dtype": torch.bfloat16}),
    "one dimension": (nn.Conv1d(8, 8, 3), (4, 8, 200), {}),
    "three dimensions": (nn.Conv3d(4, 4, 3), (1, 4, 12, 12, 12), {}),
    "transposed": (nn.ConvTranspose2d(8, 8, 3), (2, 8, 16, 16), {}),
    "f64": (nn.Conv2d(8, 8, 3).double(), (2, 8, 16, 16), {"dtype": torch.float64}),
    "no convolution": (nn.Linear(16, 16), (2, 8, 16, 16), {}),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_others_stay_as_they_are(name: str) -> None:
    net, sizes, how = UNTOUCHED[name]
    turned = Turned(net)
    x = image(*sizes, **{"last": False, **how})
    with torch.no_grad():
        agree(turned.call(x), net(x))
    assert not turned.clones


def test_sizes_that_are_symbols_stay_as_they_are() -> None:
    net = nn.Conv2d(8, 8, 3)
    turned = Turned(net, dynamic=True)
    with torch.no_grad():
        for n in (16, 20, 24):
            x = torch.randn(2, 8, n, n)
            agree(turned.call(x), net(x))
    assert not turned.clones


def test_the_graph_that_came_is_left_as_it_was() -> None:
    seen: list[GraphModule] = []

    def compiled(graph: GraphModule, _: Any) -> Any:
        before = str(graph.graph)
        assert channels_last(graph) is not graph
        assert str(graph.graph) == before
        seen.append(graph)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Block(16).eval(), backend=aot_autograd(fw_compiler=compiled), dynamic=False)(
            torch.randn(2, 16, 16, 16)
        )
    assert seen
