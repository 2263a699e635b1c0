"""Tensors that lie in memory in every way that a kernel may meet."""

import itertools
from collections.abc import Sequence

import torch


def lying(sizes: Sequence[int], dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """Tensors of these sizes in every order of their axes, in part, and repeated."""
    found = {"part": torch.randn([2 * n for n in sizes])[tuple(slice(0, n) for n in sizes)]}
    orders = list(itertools.permutations(range(len(sizes))))
    for order in orders if len(sizes) < 5 else orders[::9]:
        back = sorted(range(len(sizes)), key=order.__getitem__)
        found[f"order {order}"] = torch.randn([sizes[i] for i in order]).permute(back)
    typed = {name: t.to(dtype) for name, t in found.items()}
    for axis in range(2):
        once = torch.randn([1 if a == axis else n for a, n in enumerate(sizes)]).to(dtype)
        typed[f"repeated along {axis}"] = once.expand(sizes)
    return typed
