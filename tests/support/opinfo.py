"""PyTorch's own samples of its ops as graphs: which can be said, forward and backward, and whether they agree.

PYTHONPATH=client python -m tests.support.opinfo        writes benchmarks/results/opinfo_coverage.md
"""

import itertools
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.support.aten_graphs import Outcome, Traced, outcome, traced

TABLE = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "opinfo_coverage.md"
DTYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "bool": torch.bool,
}
PARTS = 28  # of the entries: about 25 each

# Entries whose results are memory as it was found.
UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


@dataclass(frozen=True)
class Found:
    """A graph of an entry's, or none where PyTorch itself does not trace the sample: `untraced`, with its reason."""

    kind: str
    outcome: Outcome


@cache
def entries() -> Mapping[str, Any]:
    """PyTorch's entries by name, with the variant behind a dot. Takes seconds to import."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {f"{i.name}.{i.variant_test_name}" if i.variant_test_name else i.name: i for i in op_db}


def names(part: int) -> list[str]:
    """The entries of one part, from all over the alphabet."""
    return sorted(entries())[part::PARTS]


def supports(name: str, dtype: torch.dtype) -> bool:
    """Whether PyTorch has samples of an entry in a dtype."""
    return dtype in entries()[name].supported_dtypes("cpu")


def found(name: str, dtype: torch.dtype, samples: int) -> list[Found]:
    """The graphs of an entry's first samples."""
    results: list[Found] = []
    for graph in _graphs(name, dtype, samples):
        if isinstance(graph, Traced):
            results.append(Found(graph.kind, outcome(graph, values=name not in UNDEFINED, slack=SLACK.get(name, 1.0))))
        else:
            results.append(Found("", Outcome("untraced", graph)))
    return results


# Times the usual tolerance: entries that amplify roundings, in ways that comparing with f64 does not show.
SLACK: Mapping[str, float] = {}


def _graphs(name: str, dtype: torch.dtype, samples: int) -> Iterator[Traced | str]:
    info = entries()[name]
    grad = dtype.is_floating_point and info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            given = list(itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=grad), samples))
        except Exception as error:  # of PyTorch's samples, a few of which need what this build lacks
            yield _reason(error)
            return
        for sample in given:
            leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
            places = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]

            def call(
                *tensors: torch.Tensor, leaves: list[Any] = leaves, places: list[int] = places, spec: Any = spec
            ) -> Any:
                whole = list(leaves)
                for i, t in zip(places, tensors, strict=True):
                    whole[i] = t
                x, args, kwargs = pytree.tree_unflatten(whole, spec)
                return [o for o in pytree.tree_leaves(info.op(x, *args, **kwargs)) if isinstance(o, torch.Tensor)]

            try:
                yield from traced(call, [leaves[i] for i in places])
            except Exception as error:  # of PyTorch's own, which our back end is then not asked about
                yield _reason(error)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0][:90]}"


def state(results: Sequence[Found]) -> str:
    """One word for several graphs: said where all are; partly where some are, or groups of some."""
    states = {f.outcome.state for f in results}
    if not results or states == {"untraced"}:
        return "untraced"
    if states <= {"said", "empty"}:
        return "said"
    return "partly" if states & {"said", "partly"} else "refused"


def faults(name: str, results: Sequence[Found]) -> list[str]:
    """A line for each graph that is wrong, or fails with an exception of ours."""
    wrong = [f for f in results if f.outcome.state in ("wrong", "fault")]
    return [f"{name} {f.kind}: {f.outcome.state}: {f.outcome.detail}" for f in wrong]


@dataclass
class Coverage:
    """Counts over entries of one dtype. forward: by the graphs that are no gradients; both: by all of them."""

    forward: Counter[str]
    both: Counter[str]
    reasons: dict[str, list[str]]

    @staticmethod
    def empty() -> "Coverage":
        """No entries yet."""
        return Coverage(Counter(), Counter(), defaultdict(list))

    def add(self, name: str, results: Sequence[Found]) -> None:
        """Counts one entry."""
        self.forward[state([f for f in results if f.kind != "backward"])] += 1
        self.both[state(results)] += 1
        for reason in {f.outcome.detail for f in results if f.outcome.state in ("refused", "partly", "untraced")}:
            self.reasons[reason].append(name)

    def row(self, dtype: str) -> str:
        """A row of the table."""
        cells = [str(sum(self.both.values()) - self.both["untraced"])]
        for counts in (self.forward, self.both):
            cells += [str(counts[s]) for s in ("said", "partly", "refused")]
        return f"| {dtype} | {' | '.join(cells)} |"


INTRODUCTION = """# PyTorch's own samples as wire graphs

`PYTHONPATH=client python -m tests.support.opinfo`, PyTorch {version}: the first {samples} samples of each entry of
`op_db`, traced by AOTAutograd, forward and backward; what is said is read by the reader, run by the interpreter, and
agrees with eager PyTorch. Whole: all graphs of all samples, but for writes to inputs at their ends. Entries that
PyTorch itself does not trace are left out; graphs that compute nothing, of views alone, count as whole.
"""

HEAD = """| dtype | entries | forward: whole | partly | not | with gradients: whole | partly | not |
|---|---|---|---|---|---|---|---|"""


def table(coverage: Mapping[str, Coverage], samples: int) -> str:
    """The page: counts by dtype, and why entries are not said as a whole, of f32, by frequency."""
    rows = [coverage[d].row(d) for d in coverage]
    reasons = sorted(coverage["f32"].reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    lines = [f"| {len(of)} | {why.replace('|', '/')} | {', '.join(sorted(of)[:4])} |" for why, of in reasons]
    return "\n".join(
        [
            INTRODUCTION.format(version=torch.__version__, samples=samples),
            HEAD,
            *rows,
            "",
            "Why graphs of f32 are not said as a whole; an entry may have several reasons.",
            "",
            "| entries | reason | among them |",
            "|---|---|---|",
            *lines,
            "",
        ]
    )


def main(samples: int = 3) -> None:
    """Writes the page, and prints what is wrong."""
    torch.set_num_threads(1)
    coverage: dict[str, Coverage] = {}
    for dtype, torch_dtype in DTYPES.items():
        coverage[dtype] = Coverage.empty()
        for name in sorted(entries()):
            if supports(name, torch_dtype):
                results = found(name, torch_dtype, samples)
                coverage[dtype].add(name, results)
                print("".join(f"{line}\n" for line in faults(name, results)), end="", flush=True)
        print(coverage[dtype].row(dtype), flush=True)
    TABLE.write_text(table(coverage, samples))


if __name__ == "__main__":
    main()
