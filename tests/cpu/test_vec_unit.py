"""What CUDA's header makes of the special function unit stays within the ulps of OPS, whatever errors the unit has.

The model is off by the same share of an ulp everywhere: by 1.41 ulps of 2^x and 0.98 of 1 / x, rounding included, as
the designers of such a unit published (Oberman and Siu, "A high-performance area-efficient multifunction interpolator",
2005). The PTX ISA promises 2^-22 and an ulp. `tests/gpu/test_elementary.py` asks a device.
"""

from itertools import product

import numpy as np
import pytest

from fusion_ir.dtype import f32
from fusion_ir.ops import OPS
from tests.support.vec_compare import exact, ulps_off
from tests.support.vec_harness import Function, Library, Spelling, build_functions
from tests.support.vec_ops import math_operands

NAMES = ("exp", "exp2", "sigmoid", "tanh", "erf")
FUNCTIONS = {name: Function(f"{name}_by_unit", OPS[name].cpp, (f32,), f32, 4) for name in NAMES}
ERRORS = [(0.0, 0.0), *product((-0.91, 0.91), (-0.5, 0.5))]  # of 2^x and 1 / x, before they are rounded


@pytest.fixture(scope="module", params=ERRORS, ids=str)
def library(request: pytest.FixtureRequest) -> Library:
    exp2, inverse = request.param
    flags = ("-march=native", "-DFP_EMULATE", f"-DFP_UNIT_EXP2={exp2}", f"-DFP_UNIT_INVERSE={inverse}")
    return build_functions(FUNCTIONS.values(), Spelling("modelled", ("g++",), flags, 4, "vec_cuda.cuh"))


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
    flags = ("-march=native", "-DFP_EMULATE", "-DFP_UNIT_EXP2=4.0", "-DFP_UNIT_INVERSE=-4.0")
    library = build_functions(FUNCTIONS.values(), Spelling("worse", ("g++",), flags, 4, "vec_cuda.cuh"))
    (x,) = math_operands(OPS["exp"], f32, seed=3, count=1000)
    for name in ("exp", "exp2", "sigmoid", "tanh"):
        assert ulps_off(library.run(FUNCTIONS[name], x), exact(OPS[name], x)).max() > OPS[name].ulps
