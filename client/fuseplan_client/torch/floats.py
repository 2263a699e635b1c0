"""Floats of a program, that its graphs take for inputs once they vary.

AOTAutograd makes tensors of them where an op has an overload for that (`x * a`), and constants of the rest (`x ** a`),
for which the program has to be traced once more, with a guard. Where one float is used in both ways, that is left out
(PyTorch 2.13: Inductor computes with the old one), although the guard that it needs is noted."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from torch._dynamo.exc import TensorifyScalarRestartAnalysis
from torch._dynamo.symbolic_convert import TensorifyState
from torch._guards import TracingContext
from torch.utils._sympy.symbol import SymT, symbol_is_type


@contextmanager
def guarded_floats() -> Generator[None]:
    """While AOTAutograd compiles a graph. Raises what makes Dynamo trace the program again, with those floats constant
    of which constants were made meanwhile."""
    before = set(_guards())
    yield
    made = {str(s) for guard in set(_guards()) - before for s in guard.free_symbols if symbol_is_type(s, SymT.FLOAT)}
    unknown = [name for name in made if not TensorifyState.should_specialize(name)]
    for name in unknown:
        TensorifyState.specialize(name)
    if unknown:
        raise TensorifyScalarRestartAnalysis


def _guards() -> list[Any]:
    context = TracingContext.try_get()
    env = getattr(getattr(context, "fake_mode", None), "shape_env", None)
    return [guard.expr for guard in env.guards] if env is not None else []
