"""Which devices of a database a --target means."""

from codegen.hardware.gpus import GPUS


def is_of_target(target: str, kind: str, name: str) -> bool:
    """Whether a device is one of `target`: of its kind ("cpu", "cuda", "emulator"), or, for one of `GPUS`, of that
    product, which drivers name with more words ("NVIDIA H100 80GB HBM3")."""
    if target not in GPUS:
        return kind == target.partition(":")[0]
    products = [gpu for gpu in GPUS if name.startswith(GPUS[gpu].name)]
    return max(products, key=lambda gpu: len(GPUS[gpu].name), default=None) == target
