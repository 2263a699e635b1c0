"""A group of ops in a graph of PyTorch's: for each set of sizes that it is called with, a slot for a plan."""

import logging
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule
from torch.fx._lazy_graph_module import _LazyGraphModule

from fuseplan_client.torch.higher_order import in_eager_mode
from fuseplan_client.torch.partition import copied
from fuseplan_client.torch.plan_call import Call
from fuseplan_client.torch.seen import is_as_foreseen, seen
from fuseplan_client.torch.slot import Slot
from fuseplan_client.torch.tensor_layout import Seen
from fuseplan_client.torch.tolerant import is_tolerant, tolerant
from fuseplan_client.torch.updates import Update, updating

log = logging.getLogger("fuseplan")

MOST_ALIGNMENT = 64  # bytes
MOST_SIZES = 8  # that a group gets plans for; beyond, what it replaced runs

# Asks for a plan of a group's module for inputs like the examples, which are fake tensors and numbers; what their
# addresses are multiples of; and what the ops gave, where that is not what the module foresaw.
Ask = Callable[[GraphModule, Slot, Sequence[Any], Sequence[int], Seen | None], None]


class PlannedGroup(torch.nn.Module):
    """Stands where its ops stood, and never raises what they would not. It asks for a plan behind its first call, when
    it is known how tensors are laid out: kernels of PyTorch's need not give what it foresaw. dynamic: sizes are looked
    up at every call.

    examples: fake tensors as the graph foresaw them. updates: those that it makes itself. replaced: makes what runs
    until there is a plan, and instead of one that is slower, of the module and the inputs of the first call.
    """

    def __init__(
        self,
        module: GraphModule,
        examples: Sequence[Any],
        dynamic: bool,
        label: str,
        updates: Sequence[Update],
        slot: Callable[[Call], Slot],
        ask: Ask,
        replaced: Callable[[GraphModule, Sequence[Any]], Call],
    ) -> None:
        super().__init__()
        self.module, self.label, self.dynamic, self.updates = module, label, dynamic, updates
        self._examples, self._slot, self._ask, self._replaced = examples, slot, ask, replaced
        self._lock = threading.Lock()
        self.slots: dict[Any, Slot] = {}
        self._only: Slot | None = None

    @cached_property
    def by_ops(self) -> Call:
        """The group's ops as PyTorch runs them."""
        return by_eager(self.module, ())

    def __call__(self, *args: Any) -> Any:
        """Without `Module.__call__`, which looks for hooks: nobody has this module but the graph that it is in."""
        slot = self._only
        return slot.run(args) if slot is not None else self._of_sizes(args)

    def forward(self, *args: Any) -> Any:
        return self(*args)

    def _of_sizes(self, args: Sequence[Any]) -> Any:
        key = tuple(map(_layout, args)) if self.dynamic else None
        slot = self.slots.get(key)
        if slot is None:
            if len(self.slots) >= MOST_SIZES:
                return updating(by_eager(self.module, args), self.updates)(args)
            with self._lock:
                slot = self.slots.get(key)
                is_first = slot is None
                if slot is None:
                    replaced = updating(self._replaced(self.module, args), self.updates)
                    slot = self.slots[key] = self._slot(replaced)
            if is_first:
                return self._first(key, slot, args)
        return slot.run(args)

    def _first(self, key: Any, slot: Slot, args: Sequence[Any]) -> Any:
        """The first call, and the question for a plan, of what it gave. One that raises, or is captured, is none."""
        found, is_first = None, False
        try:
            found = slot.run(args)
            is_first = not slot.device.is_capturing()
        finally:
            if not is_first:
                self.slots.pop(key, None)
        if not is_first:
            return found
        if not self.dynamic:
            self._only = slot
        try:
            known = not self.dynamic and all(map(_alike, args, self._examples))
            what = None if known and is_as_foreseen(self.module, found) else seen(self.module, args)
            examples = self._examples if known else _faked(args)
            self._ask(self.module, slot, examples, list(map(_alignment, args)), what)
        except Exception as error:  # a fault of ours costs this group, never the program
            slot.withdraw(f"{type(error).__name__}: {error}")
        return found


def by_eager(module: GraphModule, args: Sequence[Any]) -> Call:
    """The module's ops one by one, as PyTorch runs them."""
    if not is_tolerant(module.graph):
        module = tolerant(GraphModule(module, copied(module.graph)))
    forward = module.forward
    return lambda given: forward(*given)


def by_inductor(module: GraphModule, args: Sequence[Any]) -> Call:
    """The module by Inductor, compiled for these inputs; by eager mode where that fails."""
    try:
        compiled = torch.compile(_bare(module), backend="inductor", dynamic=False)
        with torch.no_grad():
            compiled(*args)
    except Exception as error:  # it runs as it is
        log.warning("a group is not compiled by Inductor: %s: %s", type(error).__name__, error)
        return by_eager(module, args)
    return lambda given: compiled(*given)


def own_by_eager(module: GraphModule) -> Callable[..., Any]:
    """A graph of Dynamo's as PyTorch runs it: its own code, without the calls by which a lazy module comes to it."""
    module = in_eager_mode(module)
    _LazyGraphModule.force_recompile(module)
    return module.forward


def own_by_inductor(module: GraphModule) -> Callable[..., Any]:
    """A graph of Dynamo's by Inductor, compiled at its first call; by eager mode where that fails."""
    compiled = torch.compile(GraphModule(module, _without_values(module.graph)), backend="inductor")
    found: list[Callable[..., Any]] = []

    def call(*args: Any) -> Any:
        if found:
            return found[0](*args)
        try:
            result = compiled(*args)
            found.append(compiled)
        except Exception as error:  # it runs as it is, and raises by itself what is the program's
            log.warning("a graph is not compiled by Inductor: %s: %s", type(error).__name__, error)
            found.append(own_by_eager(module))
            return found[0](*args)
        return result

    return call


def _bare(module: GraphModule) -> GraphModule:
    return GraphModule({}, _without_values(module.graph))


def _without_values(graph: Graph) -> Graph:
    """A copy without what nodes know of their values: these are for the trace that the graph comes from."""
    copy = Graph()
    copy.output(copy.graph_copy(graph, {}))
    for node in copy.nodes:
        node.meta = {}
    return copy


def _layout(value: Any) -> Any:
    """Facts of an input that a plan depends on: of floats none, since they are inputs of plans."""
    if isinstance(value, torch.Tensor):
        return value.dtype, *value.shape, *value.stride()
    return float if isinstance(value, float) else value


def _alignment(value: Any) -> int:
    """The largest power of two, MOST_ALIGNMENT at most, that a tensor's address is a multiple of."""
    address = value.data_ptr() if isinstance(value, torch.Tensor) else 0
    return min(address & -address or MOST_ALIGNMENT, MOST_ALIGNMENT)


def _alike(value: Any, example: Any) -> bool:
    """Whether an input is what the graph foresaw."""
    if not isinstance(value, torch.Tensor) or not isinstance(example, torch.Tensor):
        return type(value) is type(example) and (value == example or isinstance(value, float))
    layouts = [(t.dtype, t.shape, t.stride(), t.storage_offset(), t.layout, t.device) for t in (value, example)]
    return layouts[0] == layouts[1]


def _faked(args: Sequence[Any]) -> Sequence[Any]:
    with FakeTensorMode() as mode, torch.no_grad():
        return [mode.from_tensor(a, static_shapes=True) if isinstance(a, torch.Tensor) else a for a in args]
