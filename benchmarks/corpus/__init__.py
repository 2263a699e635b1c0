"""The corpus: computations that fusion is for, each as a graph of ours and as PyTorch's users write it.

`TOPICS` is the whole of it; a new case is a row of its topic's file, and tests and benchmark find it here.
"""

from collections.abc import Mapping

from benchmarks.corpus.activations import ACTIVATIONS
from benchmarks.corpus.attention import ATTENTION
from benchmarks.corpus.case import Case
from benchmarks.corpus.chains import CHAINS
from benchmarks.corpus.channel_norms import CHANNEL_NORMS
from benchmarks.corpus.losses import LOSSES
from benchmarks.corpus.matmuls import MATMULS
from benchmarks.corpus.norms import NORMS
from benchmarks.corpus.odd_axes import ODD_AXES
from benchmarks.corpus.odd_types import ODD_TYPES
from benchmarks.corpus.reductions import REDUCTIONS
from benchmarks.corpus.residuals import RESIDUALS
from benchmarks.corpus.rope import ROPE
from benchmarks.corpus.rope_backward import ROPE_BACKWARD
from benchmarks.corpus.scaling import SCALING
from benchmarks.corpus.scatters import SCATTERS
from benchmarks.corpus.small_products import SMALL_PRODUCTS
from benchmarks.corpus.softmax import SOFTMAX
from benchmarks.corpus.transposes import TRANSPOSES

TOPICS: Mapping[str, tuple[Case, ...]] = {
    "rope": ROPE,
    "rope backward": ROPE_BACKWARD,
    "norms": NORMS,
    "channel norms": CHANNEL_NORMS,
    "softmax": SOFTMAX,
    "losses": LOSSES,
    "activations": ACTIVATIONS,
    "residuals": RESIDUALS,
    "scaling": SCALING,
    "transposes": TRANSPOSES,
    "reductions": REDUCTIONS,
    "small products": SMALL_PRODUCTS,
    "matmuls": MATMULS,
    "chains": CHAINS,
    "attention": ATTENTION,
    "scatters": SCATTERS,
    "odd": (*ODD_TYPES, *ODD_AXES),
}

CASES: Mapping[str, Case] = {case.name: case for cases in TOPICS.values() for case in cases}
