"""Where two results differ: in bits, and in units of the last place."""

import numpy as np


def differing(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Positions at which two arrays differ in bits, all NaNs being equal."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    bits = np.dtype(f"u{got.dtype.itemsize}")
    different = np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(expected).view(bits)
    if got.dtype.kind in "fV":
        with np.errstate(all="ignore"):
            different &= ~(np.isnan(got.astype(np.float64)) & np.isnan(expected.astype(np.float64)))
    return np.flatnonzero(different)
