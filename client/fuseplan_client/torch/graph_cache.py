"""AOTAutograd's cache of graphs: a program that starts again with the same model need not trace it.

Kept are the graphs as AOTAutograd cut them, with their layouts, before their ops are grouped: groups and plans are of
one process. PyTorch keeps them where it keeps Inductor's, by the model's graph, its own version and configuration, and
puts them into what `torch.compiler.save_cache_artifacts` saves. Graphs with sizes that vary, or with tensors of their
own, are not kept."""

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Self

import torch
from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._functorch import config as functorch_config
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, should_use_local_autograd_cache
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._guards import TracingContext, detect_fake_mode
from torch._inductor.output_code import OutputCode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx._graph_pickler import GraphPickler, Options

log = logging.getLogger("fuseplan")

CONFIG: Any = functorch_config  # modules that PyTorch gives methods
SETTINGS: Any = torch.compiler.config
# A backward pass is compiled along with its forward pass, since both are kept as one.
OPTIONS = {"bundled_autograd_cache": True, "force_non_lazy_backward_lowering": True}
Run = Callable[..., Any]
# Groups the ops of a graph, of a kind, with static inputs of these names: the function that computes it.
Grouping = Callable[[str, GraphModule, frozenset[str]], Run]

_grouping: ContextVar[Grouping | None] = ContextVar("grouping", default=None)
UNKEPT = (
    "nn_module_stack",
    "fwd_nn_module_stack",
    "source_fn_stack",
    "fwd_source_fn_stack",
    "example_value",
    "stack_trace",
    "from_node",
)


def cached(compiled: Callable[[], Run], grouping: Grouping, forget: Callable[[], None]) -> Run:
    """Runs `compiled`, which calls AOTAutograd: it takes graphs from its cache, and puts those there that it compiles.
    grouping: of what is taken from the cache. forget: drops the groups, where that failed and all is made again without
    a cache."""
    if not should_use_local_autograd_cache():
        return compiled()
    token = _grouping.set(grouping)
    try:
        with (
            CONFIG.patch(**OPTIONS),
            SETTINGS.patch(cache_key_tag=f"{SETTINGS.cache_key_tag} fuseplan {_version()}"),
        ):
            return compiled()
    except TensorifyScalarRestartAnalysis:  # the program is traced once more
        raise
    except Exception as error:  # the cache's or the program's, which is raised once more
        forget()
        found = compiled()
        log.warning("a graph is not kept: %s: %s", type(error).__name__, error)
        return found
    finally:
        _grouping.reset(token)


@dataclass
class KeptGraph(OutputCode):
    """A graph as AOTAutograd compiles it: `run` computes it, and `graph` is what is kept. static: names of its inputs
    that are parameters and buffers. unfit: why it cannot be kept."""

    kind: str
    static: frozenset[str]
    graph: bytes
    unfit: str
    run: Run | None

    def __post_init__(self) -> None:
        self._boxed_call = True

    @classmethod
    def of(cls, kind: str, module: GraphModule, static: frozenset[str], run: Callable[[], Run]) -> Self:
        """Makes it of a graph that came from AOTAutograd. run: groups its ops, which may change it."""
        graph, unfit = b"", _unfit(module)
        context = TracingContext.try_get()
        if kind == "backward" and context is not None and context.fw_metadata is not None:
            context.fw_metadata.bw_donated_idxs = []  # else gradients could be asked for once only
        if not unfit and should_use_local_autograd_cache():
            try:
                graph = GraphPickler.dumps(module, Options(ops_filter=None, node_metadata_key_filter=_is_kept))
            except Exception as error:  # of any kind, by what nodes know
                unfit = f"{type(error).__name__}: {error}"
        return cls(kind, static, graph, unfit, run())

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """Computes it, of a list of its inputs."""
        return self.run(inputs)  # type: ignore[misc]

    def prepare_for_serialization(self) -> None:
        """Drops what is of this process. Raises BypassAOTAutogradCache."""
        if self.unfit or not self.graph:
            raise BypassAOTAutogradCache(f"fuseplan: {self.unfit or 'caches are off'}")
        self.run = None

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Groups the ops of a graph that was kept."""
        if self.run is not None:
            return
        module: Any = GraphPickler.loads(self.graph, detect_fake_mode(example_inputs) or FakeTensorMode())
        grouping = _grouping.get() or _as_it_is
        self.run = torch._dynamo.disable(grouping(self.kind, module, self.static), reason="compiled by AOTAutograd")
        self.graph = b""

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is none."""


def compiler(kind: str, grouping: Grouping) -> SerializableAOTDispatchCompiler:
    """Compiles AOTAutograd's graphs of a kind."""

    def compiled(module: GraphModule, _: Sequence[Any]) -> KeptGraph:
        static = _static_inputs(module)
        return KeptGraph.of(kind, module, static, partial(grouping, kind, module, static))

    return SerializableAOTDispatchCompiler(KeptGraph, compiled)


def _static_inputs(module: GraphModule) -> frozenset[str]:
    """Names of the inputs of a graph that are parameters and buffers."""
    context = TracingContext.try_get()
    indices = getattr(context.fw_metadata, "static_input_indices", ()) if context and context.fw_metadata else ()
    inputs = [n.name for n in module.graph.nodes if n.op == "placeholder"]
    return frozenset(inputs[i] for i in indices or () if i < len(inputs))


def _as_it_is(kind: str, module: GraphModule, static: frozenset[str]) -> Run:
    return lambda inputs: module.forward(*inputs)


def _is_kept(key: str) -> bool:
    return key not in UNKEPT


def _unfit(module: GraphModule) -> str:
    """Why a graph cannot be kept; empty where it can."""
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module", "call_method"):
            return f"it has {node.op} {node.target}"
        if any(
            isinstance(part, torch.SymInt | torch.SymFloat | torch.SymBool) for part in _numbers(node.meta.get("val"))
        ):
            return "its sizes vary"
    return ""


def _numbers(value: Any) -> Sequence[Any]:
    if isinstance(value, torch.Tensor):
        return (*value.shape, *value.stride(), value.storage_offset())
    return [n for v in value for n in _numbers(v)] if isinstance(value, list | tuple) else (value,)


@cache
def _version() -> str:
    """The digest of the code that makes graphs what they are."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
