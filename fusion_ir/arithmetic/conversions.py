"""Conversions between element types on NumPy arrays, bit for bit as the language defines `cast`.

f64 reaches f16, bf16 and f8 by way of f32, integers reach them by way of f32 too. Float to integer truncates,
saturates and sends NaN to 0; integer to integer wraps; anything to bool is `!= 0`, NaN included. ml_dtypes rounds to
nearest even, keeps denormals, and overflows to infinity in f8e5m2; f8e4m3, which has none, saturates, as in torch.
"""

import numpy as np

from fusion_ir.dtype import DTYPES, DType, accumulate_dtype, compute_dtype

F8E4M3_LARGEST = np.float32(448)
OF_NUMPY: dict[np.dtype, DType] = {row.numpy: row for row in DTYPES.values()}


def dtype_of(array: np.ndarray) -> DType:
    """The element type of an array. Raises KeyError where the language has none."""
    return OF_NUMPY[array.dtype]


def widen(array: np.ndarray) -> np.ndarray:
    """`array` in its compute dtype: f32 for f16, bf16 and f8; itself otherwise. Exact."""
    return array.astype(compute_dtype(dtype_of(array)).numpy, copy=False)


def accumulate(array: np.ndarray) -> np.ndarray:
    """`array` in the type in which sums over it run: f32 or f64; i64 for integers and bool. Exact."""
    return array.astype(accumulate_dtype(dtype_of(array)).numpy, copy=False)


def round_to(array: np.ndarray, dtype: DType) -> np.ndarray:
    """`cast{dtype}` of an array of any element type. Returns `array` itself where nothing changes."""
    source = dtype_of(array)
    if source == dtype:
        return array
    with np.errstate(all="ignore"):
        wide = widen(array)
        if dtype.kind == "bool":
            return np.not_equal(wide, 0)
        if dtype.is_integer:
            return _to_integer(wide, dtype) if source.is_float else wide.astype(dtype.numpy)
        if dtype.name == "f64":
            return wide.astype(np.float64)
        return narrowed(wide.astype(np.float32, copy=False), dtype)


def narrowed(array: np.ndarray, dtype: DType) -> np.ndarray:
    """f32 values rounded to a float type of at most 32 bits; what f8e4m3 has no room for is its largest number."""
    if dtype.name == "f8e4m3":
        array = np.clip(array, -F8E4M3_LARGEST, F8E4M3_LARGEST)
    return array.astype(dtype.numpy, copy=False)


def _to_integer(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Truncates and saturates; NaN gives 0.

    The bounds are powers of two or small, so they are exact in any float type.
    """
    info = np.iinfo(dtype.numpy)
    above = x >= x.dtype.type(float(info.max + 1))
    below = x <= x.dtype.type(float(info.min))
    inside = np.where(above | below | np.isnan(x), x.dtype.type(0), x).astype(dtype.numpy)
    return np.where(above, dtype.numpy.type(info.max), np.where(below, dtype.numpy.type(info.min), inside))


def ulp(array: np.ndarray) -> np.ndarray:
    """The distance between neighbours of the array's float dtype at each magnitude; 0 for infinities and NaN."""
    dtype = dtype_of(array)
    wide = widen(array)
    words = np.dtype(f"u{wide.dtype.itemsize}")
    infinity = np.full(1, np.inf, wide.dtype).view(words)[0]
    power: np.ndarray = wide.view(words) & infinity  # the exponent field alone: the power of two below each magnitude
    least_normal = wide.dtype.type(2.0**dtype.least_normal)
    distance: np.ndarray = np.maximum(power.view(wide.dtype), least_normal) * wide.dtype.type(2.0 ** (1 - dtype.digits))
    finite = power != infinity
    return distance if finite.all() else np.where(finite, distance, wide.dtype.type(0))
