"""`torch.compile(model, backend="fuseplan")`: the parts of a model's graphs that plans can compute, computed by plans.

AOTAutograd gives graphs of aten ops, forward and backward. The groups of ops in them that the wire format has words for
become submodules; whoever calls the model goes on with PyTorch's own ops while a server looks for plans, and with a
plan once it has shown on live inputs that it agrees and is faster."""

import logging
import math
import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.eval_frame import innermost_fn
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import GraphModule, Node

from fuseplan_client.cpu.executor import Executor
from fuseplan_client.device import class_key
from fuseplan_client.plan import read_plan
from fuseplan_client.server.answers import Answer
from fuseplan_client.torch import asking
from fuseplan_client.torch.agreement import roundings, terms
from fuseplan_client.torch.asking import Asker, Question
from fuseplan_client.torch.devices import Given, GroupDevice, device_of
from fuseplan_client.torch.direct import directly, is_direct
from fuseplan_client.torch.embedded import embedded_server
from fuseplan_client.torch.export import Exported, export
from fuseplan_client.torch.floats import guarded_floats
from fuseplan_client.torch.gradients import apart_gradients
from fuseplan_client.torch.graph_cache import Run, cached, compiler
from fuseplan_client.torch.group import (
    MOST_ALIGNMENT,
    PlannedGroup,
    by_eager,
    by_inductor,
    own_by_eager,
    own_by_inductor,
)
from fuseplan_client.torch.kernel_values import foresee
from fuseplan_client.torch.layouts import channels_last
from fuseplan_client.torch.masked_updates import with_choices
from fuseplan_client.torch.partition import partition
from fuseplan_client.torch.parts import parts_of, ways_of
from fuseplan_client.torch.plan_call import Names, updated_buffers
from fuseplan_client.torch.rounded_once import rounded_once
from fuseplan_client.torch.slot import Offered, Refusal, Slot
from fuseplan_client.torch.support import SYMBOLS, Support, concrete
from fuseplan_client.torch.tensor_layout import Seen
from fuseplan_client.torch.tolerant import tolerant
from fuseplan_client.torch.updates import Update, drop_statistics, take_updates, updating
from fuseplan_client.torch.whole import CompiledGraph, WholeGraph

log = logging.getLogger("fuseplan")

OWN_OPTIONS = 6  # the first of these; the others are for `PlanClient`
OPTIONS = ("server", "seconds", "until", "constants", "least_ops", "excess_precision", "server_keys", "cache")
UNTIL = {"eager": (by_eager, own_by_eager), "inductor": (by_inductor, own_by_inductor)}
DEFAULT_SECONDS = 60.0
FIRST_SECONDS = 10.0
LEAST_SECONDS = 5.0  # of search for a part of a group; as many as were asked for, where these are fewer


@dataclass(frozen=True)
class Wanted:
    """Facts of a plan that is asked for. constants: positions of inputs that do not change from call to call. updates:
    of inputs, by what the group computes. seconds: of search."""

    constants: frozenset[int]
    updates: Sequence[Update]
    seconds: float


@dataclass
class Backend:
    """One configuration of the back end, with what it compiled and the program still has. server: its address; None:
    FUSEPLAN_SERVER, or else one of this process's own. seconds: of search for each group; its other ways (`parts`)
    share as many, but for LEAST_SECONDS that each part has. until: what runs before there is a plan, "eager" or
    "inductor", and where no plan is faster. constants: parameters and buffers of models that are called without
    gradients are taken for constants: what depends on them alone is computed once, and again where PyTorch counted a
    write to one; writes by `.data` are not counted. least_ops: of a group that a plan is asked for. excess_precision:
    what one pointwise op alone reads of another need not be rounded to bf16 between them, as eager mode rounds it.
    """

    server: str | None = None
    seconds: float = DEFAULT_SECONDS
    until: str = "eager"
    constants: bool = False
    least_ops: int = 2
    excess_precision: bool = True
    client: Mapping[str, Any] = field(default_factory=dict[str, Any])
    problems: list[str] = field(default_factory=list)
    asker: Any = None  # whom plans are asked of

    def __post_init__(self) -> None:
        if self.until not in UNTIL:
            raise ValueError(f"until: expected {' or '.join(UNTIL)}, got {self.until!r}")
        for name, least in (("seconds", 0), ("least_ops", 1)):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not least <= value < math.inf:
                raise ValueError(f"{name}: expected a number from {least} on, got {value!r}")
        for name in ("constants", "excess_precision"):
            if not isinstance(value := getattr(self, name), bool):
                raise ValueError(f"{name}: expected True or False, got {value!r}")
        if self.server is not None and not isinstance(self.server, str):
            raise ValueError(f"server: expected an address, got {self.server!r}")
        self._wholes: list[weakref.ref[WholeGraph]] = []
        named = self.server or os.environ.get("FUSEPLAN_SERVER")
        self.asker = self.asker or Asker(named or embedded_server, **self.client)

    def __call__(self, module: GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
        """Compiles a graph of Dynamo's."""
        is_dynamic = any(isinstance(e, SYMBOLS) for e in examples)
        whole = WholeGraph(UNTIL[self.until][1](module), is_dynamic, self.problems.append)
        grouping = partial(self._run, whole, partial(is_direct, module, examples))
        compile_ = aot_autograd(
            fw_compiler=compiler("forward", grouping),
            bw_compiler=compiler("backward", grouping),
            inference_compiler=compiler("inference", grouping),
            partition_fn=self._cut,
            keep_inference_input_mutations=True,
        )
        try:
            with guarded_floats():
                compiled = cached(lambda: compile_(with_choices(module), examples), grouping, whole.forget)
            compiled = innermost_fn(compiled)  # Dynamo is off already where it calls `whole`
            if whole.direct is not None and not torch._C._is_any_autocast_enabled():  # AOTAutograd turns it off
                compiled = directly(whole.direct, compiled)
            whole.compiled = compiled
        except TorchDynamoException:  # of what Dynamo does next
            raise
        except Exception as error:  # a gradient that nobody asked for yet, and that there is none of, for one
            whole.forget()
            self.problems.append(f"a graph stays PyTorch's: {type(error).__name__}: {error}")
            log.warning("%s", self.problems[-1])
        self._wholes = [ref for ref in self._wholes if ref() is not None] + [weakref.ref(whole)]
        return whole

    def __deepcopy__(self, memo: Any) -> "Backend":
        """Itself: a copy of a compiled model is compiled by the same."""
        return self

    @property
    def wholes(self) -> list[WholeGraph]:
        """The graphs of Dynamo's, but for those that stay as they are."""
        return [whole for ref in self._wholes if (whole := ref()) is not None]

    @property
    def groups(self) -> list[PlannedGroup]:
        """The groups of all graphs."""
        return [group for whole in self.wholes for group in whole.groups]

    @property
    def graphs(self) -> list[CompiledGraph]:
        """The graphs of AOTAutograd's that have groups."""
        return [graph for whole in self.wholes for graph in whole.graphs]

    def wait(self, seconds: float) -> bool:
        """Waits until every plan that was asked for is there, or will not be. For tests and benchmarks: programs go
        on."""
        return self.asker.wait(seconds)

    @property
    def is_settled(self) -> bool:
        """Whether every plan is there, and was judged by calls, and so were the graphs with them."""
        return all(whole.is_settled for whole in self.wholes if whole.groups)

    def _run(
        self,
        whole: WholeGraph,
        fits: Callable[[GraphModule], bool],
        kind: str,
        module: GraphModule,
        static: frozenset[str],
    ) -> Run:
        """A graph of AOTAutograd's, with groups. fits: whether one without gradients is called directly."""
        if kind != "backward":  # what is there is of graphs that AOTAutograd's cache had in vain
            whole.forget()
        is_alone = kind == "inference" and fits(module)
        grouped = self._grouped(whole, kind, module, static)
        whole.direct = (lambda: grouped.forward) if is_alone else None  # looked up: `explain` looks at calls
        return lambda inputs: grouped.forward(*inputs)

    def _cut(self, joint: GraphModule, inputs: Sequence[Any], **how: Any) -> tuple[GraphModule, GraphModule]:
        """Forward and backward graph of both in one."""
        drop_statistics(joint)
        forward, backward = min_cut_rematerialization_partition(self._laid_out(joint), inputs, **how)
        return forward, apart_gradients(backward)

    def _laid_out(self, module: GraphModule) -> GraphModule:
        """The graph with the dtypes that kernels give, and the layouts that convolutions are fast with; as it came
        where that fails."""
        try:
            foresee(module)
            return channels_last(module)
        except Exception as error:
            self.problems.append(f"layouts: {type(error).__name__}: {error}")
            log.warning("convolutions stay as they are: %s: %s", type(error).__name__, error)
            return module

    def _grouped(self, whole: WholeGraph, kind: str, module: GraphModule, static: frozenset[str]) -> GraphModule:
        """The graph with groups; without any where that fails, which is never the program's problem. static: names of
        its inputs that are parameters and buffers."""
        try:
            device = device_of(module)
            if isinstance(device, str):
                self.problems.append(f"{kind}: a graph with tensors on {device} stays PyTorch's")
                return tolerant(module)
            whole.device, support = device, Support(device.name)
            constants = static if self.constants and kind == "inference" else frozenset[str]()
            module = self._laid_out(module) if kind == "inference" else module
            parts = partition(module, support, self.least_ops)
            updates = take_updates(parts.module, parts.groups)
            for name in parts.groups:
                label = f"{kind} {len(whole.groups)}"
                place = self._place(whole, parts.module, name, label, constants, self.seconds, updates[name])
                whole.groups.append(place)
            reasons = {n.name: support.verdict(n).reason for n in module.graph.nodes if n.op == "call_function"}
            left = {n.name: reasons.get(n.name, "") for n in parts.module.graph.nodes if n.op == "call_function"}
            whole.graphs.append(CompiledGraph(kind, tolerant(parts.module), left))
            return parts.module
        except Exception as error:
            self.problems.append(f"{kind}: {type(error).__name__}: {error}")
            log.warning("a graph stays PyTorch's: %s: %s", type(error).__name__, error)
            return tolerant(module)

    def _place(
        self,
        whole: WholeGraph,
        parent: GraphModule,
        name: str,
        label: str,
        constants: frozenset[str],
        seconds: float,
        updates: Sequence[Update] = (),
        is_part: bool = False,
    ) -> PlannedGroup:
        call = next(n for n in parent.graph.nodes if n.op == "call_module" and n.target == name)
        values = [a.meta["val"] for a in call.args]
        dynamic = any(isinstance(v, SYMBOLS) or _is_symbolic(v) for v in values)
        mode = next((v.fake_mode for v in values if hasattr(v, "fake_mode")), None)
        examples = values if dynamic or mode is None else [concrete(v, mode) for v in values]
        wanted = Wanted(_named(call.args, constants), updates, seconds)
        ask = partial(self._ask, whole.device, wanted) if is_part else partial(self._ask_with_parts, whole, wanted)
        inner = getattr(parent, name)
        about: dict[str, Any] = {"updates": updates, "rounded": roundings(inner), "summed": terms(inner)}
        about |= {"exactly": rounded_once(inner), "device": whole.device}
        slot = partial(Slot, refused=self._refused, changed=whole.changed, **about)
        group = PlannedGroup(inner, examples, dynamic, label, updates, slot, ask, UNTIL[self.until][0])
        setattr(parent, name, group)
        return group

    def _ask_with_parts(
        self,
        whole: WholeGraph,
        wanted: Wanted,
        module: GraphModule,
        slot: Slot,
        examples: Sequence[Any],
        alignments: Sequence[int],
        seen: Seen | None,
    ) -> None:
        """Asks for a plan of all, and once that is there, offers the same with products by PyTorch, and with attention
        alone: calls say which is fastest."""

        def ended() -> None:
            inputs = [n for n in module.graph.nodes if n.op == "placeholder"]
            names = frozenset(inputs[i].name for i in wanted.constants)
            ways = ways_of(module)

            def place(parent: GraphModule, name: str, count: int) -> PlannedGroup:
                seconds = max(wanted.seconds / len(ways) / count, min(LEAST_SECONDS, wanted.seconds))
                return self._place(whole, parent, name, name, names, seconds, is_part=True)

            for way in ways:
                parts = parts_of(module, way, whole.device.name, self.least_ops, place)
                if parts is not None:
                    slot.offer(Offered(updating(parts, wanted.updates), parts=parts))

        self._ask(whole.device, wanted, module, slot, examples, alignments, seen, ended)

    def _ask(
        self,
        device: GroupDevice,
        wanted: Wanted,
        module: GraphModule,
        slot: Slot,
        examples: Sequence[Any],
        alignments: Sequence[int],
        seen: Seen | None,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        exported: list[Exported] = []
        target = device.target()

        def requests() -> list[Mapping[str, Any]]:
            exported.append(export(module, examples, excess_precision=self.excess_precision, seen=seen))
            slot.ops = len(exported[0].body["nodes"])
            for row, read in zip(exported[0].body["inputs"], exported[0].reads, strict=True):
                if not read.number:
                    least = read.dtype.itemsize
                    row["alignment"] = max(min(row["alignment"], alignments[read.position]), least)
                if read.position in wanted.constants and not read.number:
                    row["constant"] = "torch"  # which version it is of, the tensor itself says at each call
            donate(exported[0], wanted.updates, alignments)
            targets = device.targets(target)
            return [{"graph": exported[0].body, "target": t, "device_key": class_key(t)} for t in targets]

        def ready(answer: Answer, binaries: Mapping[str, bytes], executor: Executor) -> None:
            names = Names(answer.names.inputs, answer.names.outputs)
            given = Given(read_plan(answer.plan), binaries, executor, names)
            call = device.call(exported[0], examples, given, wanted.updates)
            slot.offer(Offered(call, answer.plan_key, len(given.plan.steps)))

        def all_is_asked() -> None:
            try:
                ended()
            finally:
                slot.close()

        self.asker.ask(Question(requests, ready, slot.withdraw, all_is_asked, _rungs(wanted.seconds)))

    def _refused(
        self, plan: Offered, why: Refusal, detail: str, plan_us: float | None, replaced_us: float | None
    ) -> None:
        what = f"{plan.parts.left} by PyTorch" if plan.parts is not None else f"plan {plan.key[:12]}"
        self.problems.append(f"{what} {why}: {detail}")
        times = (plan_us, replaced_us) if why == "slower" else (None, None)
        if plan.key and why != "unfit":  # which is no fault of the plan's
            self.asker.refuse(asking.Refusal(plan.key, why, detail, *times))


def donate(exported: Exported, updates: Sequence[Update], alignments: Sequence[int]) -> None:
    """Lets outputs of the body take over the memory of the inputs that they update."""
    rows = {
        read.position: row for row, read in zip(exported.body["inputs"], exported.reads, strict=True) if not read.number
    }
    for buffer, position in updated_buffers(exported, updates).items():
        row, output = rows.get(position), exported.body["outputs"][buffer]
        if row is None or "constant" in row or row["strides"] != output["strides"]:
            continue
        if alignments[position] >= MOST_ALIGNMENT:  # which plans ask of outputs
            output["donates"] = row["name"]


def _named(args: Sequence[Any], names: frozenset[str]) -> frozenset[int]:
    """Positions of the arguments that are nodes of these names."""
    return frozenset(i for i, a in enumerate(args) if isinstance(a, Node) and a.name in names)


def _rungs(seconds: float) -> tuple[float, ...]:
    """Seconds of the searches that are asked for, one after the other, each going on where the one before ended: a plan
    that is good enough comes soon, and the best one when it is there."""
    return (FIRST_SECONDS, seconds) if seconds >= 3 * FIRST_SECONDS else (seconds,)


def _is_symbolic(value: Any) -> bool:
    sizes = (*value.shape, *value.stride()) if isinstance(value, torch.Tensor) else ()
    return any(isinstance(n, torch.SymInt) for n in sizes)


@lru_cache(maxsize=64)
def _configured(options: tuple[tuple[str, Any], ...]) -> Backend:
    """One for all graphs that are compiled with the same options: PyTorch asks for each of them."""
    given = dict(options)
    own = {k: v for k, v in given.items() if k in OPTIONS[:OWN_OPTIONS]}
    return Backend(**own, client={k: v for k, v in given.items() if k not in own})


def fuseplan(
    module: GraphModule, examples: Sequence[Any], *, options: Mapping[str, Any] | None = None, mode: str | None = None
) -> Callable[..., Any]:
    """The back end as PyTorch finds it by name. options: those of `Backend`; others are for `PlanClient`.
    Raises ValueError for an option that there is not."""
    if mode not in (None, "default"):
        raise ValueError(f"expected no mode, got {mode!r}: plans have none")
    options = options or {}
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(f"expected options {', '.join(OPTIONS)}, got {unknown[0]!r}")
    frozen = tuple((k, tuple(v) if isinstance(v, list | set) else v) for k, v in sorted(options.items()))
    return _configured(frozen)(module, examples)
