"""Functions of CUDA's header that use the special function unit stay within the ulps of OPS, whatever errors it has.

The model is off by the same share of an ulp everywhere: by 1.41 ulps of 2^x, 0.98 of 1 / x and 1.52 of 1 / sqrt x, as
the designers of such a unit published (Oberman and Siu, "A high-performance area-efficient multifunction interpolator",
2005; rounding is included). The PTX ISA promises 2^-22, an ulp and 2^-22.9. `tests/gpu/test_elementary.py` asks a
device.
"""

from itertools import product

import numpy as np
import pytest

from fusion_ir.dtype import f32
from fusion_ir.ops import OPS
from testing.vec_compare import exact, ulps_off
from testing.vec_harness import Function, Library, Spelling, build_functions
from testing.vec_ops import math_operands
from tests.support.whole import in_turn

NAMES = ("exp", "exp2", "sigmoid", "tanh", "erf", "rsqrt")
FUNCTIONS = {name: Function(f"{name}_by_unit", OPS[name].cpp, (f32,), f32, 4) for name in NAMES}
ERRORS = [(0.0, 0.0, 0.0), *((e, i, 1.02 * np.sign(e)) for e, i in product((-0.91, 0.91), (-0.48, 0.48)))]  # less 0.5


def modelled(exp2: float, inverse: float, rsqrt: float) -> Library:
    errors = (f"-DFP_UNIT_EXP2={exp2}", f"-DFP_UNIT_INVERSE={inverse}", f"-DFP_UNIT_RSQRT={rsqrt}")
    spelling = Spelling("modelled", ("g++",), ("-march=native", "-DFP_EMULATE", *errors), 4, "vec_cuda.cuh")
    return build_functions(FUNCTIONS.values(), spelling)


@pytest.fixture(scope="module", params=in_turn(ERRORS, 2, "unit"), ids=str)
def library(request: pytest.FixtureRequest) -> Library:
    return modelled(*request.param)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_within_its_ulps(name: str, library: Library) -> None:
    (x,) = math_operands(OPS[name], f32, seed=len(name), count=20_000)
    x = np.concatenate(
        [x, np.linspace(-110, 110, 50_000, dtype=np.float32), np.linspace(-1, 1, 50_000, dtype=np.float32)]
    )
    got, value = library.run(FUNCTIONS[name], x), exact(OPS[name], x)
    off = ulps_off(got, value)
    worst = np.argsort(-off)[:5]
    assert off[worst[0]] <= OPS[name].ulps, [(x[i], "gave", got[i], "exact", value[i], off[i]) for i in worst]
    assert name not in ("sigmoid", "tanh", "erf") or (np.abs(got[~np.isnan(got)]) <= 1).all()


def test_a_worse_unit_is_noticed() -> None:
    library = modelled(4.0, -4.0, 4.0)
    (x,) = math_operands(OPS["exp"], f32, seed=3, count=1000)
    for name in ("exp", "exp2", "sigmoid", "tanh", "rsqrt"):
        assert ulps_off(library.run(FUNCTIONS[name], x), exact(OPS[name], x)).max() > OPS[name].ulps
