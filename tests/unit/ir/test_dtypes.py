"""Element types are rows of one table, wherever they come from."""

import copy
import pickle

import pytest

from fusion_ir.dtype import DTYPES, DType


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_copies_are_the_row_itself(dtype: DType) -> None:
    assert copy.deepcopy([dtype])[0] is dtype
    assert copy.copy(dtype) is dtype
    assert pickle.loads(pickle.dumps(dtype)) is dtype
