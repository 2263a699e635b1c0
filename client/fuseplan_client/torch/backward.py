"""How long the backward pass of one graph among others takes: from when the gradients of its results are there until
those of its inputs are."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fuseplan_client.torch.devices import CPU, GroupDevice

Interval = tuple[Any, Any]  # marks of a device
MOST_FOLLOWED = 64  # forward passes whose backward pass is yet to come: a model may call one graph for each layer


@dataclass(eq=False)
class _Pass:
    """A forward pass whose backward pass is waited for. start: when gradients of a result were there first. end: when
    one of an input was last: which inputs get gradients, whoever asks for them decides. hooks: to be removed. Passes
    that are captured into a graph of the device's are none of ours."""

    side: bool
    forward: Interval
    device: GroupDevice
    start: Any = None
    end: Any = None
    hooks: list[Any] = field(default_factory=list)

    def begin(self, *_: Any) -> None:
        """Called when the gradients of a result are there."""
        if self.start is None and not self.device.is_capturing():
            self.start = self.device.mark()

    def reached(self, *_: Any) -> None:
        """Called when the gradient of an input is there. Of a pass that did not begin, it is another graph's."""
        if self.start is not None and not self.device.is_capturing():
            self.end = self.device.mark()

    def drop(self) -> None:
        """Removes the hooks."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []


@dataclass(eq=False)
class BackwardTimer:
    """When both passes of calls began and ended, by side. is_followed: a result had a gradient to be asked for. It has
    no lock, which the child of a fork might find held for ever: each step on the passes and samples is one of the
    interpreter's."""

    device: GroupDevice = CPU
    done: dict[bool, list[Sequence[Interval]]] = field(default_factory=lambda: {True: [], False: []})
    is_followed: bool = False
    _passes: deque[_Pass] = field(default_factory=deque)

    def follow(self, side: bool, forward: Interval, inputs: Sequence[Any], results: Any) -> None:
        """Waits for the backward pass of a call, which may never come."""
        if not torch.is_grad_enabled():
            return
        roots = {t.grad_fn for t in tree_leaves(results) if isinstance(t, torch.Tensor) and t.grad_fn is not None}
        leaves = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
        if not roots or not leaves:
            return
        self.is_followed = True
        followed = _Pass(side, forward, self.device)
        followed.hooks = [root.register_prehook(followed.begin) for root in roots]
        followed.hooks += [leaf.register_hook(followed.reached) for leaf in leaves]
        self._passes.append(followed)
        if len(self._passes) > MOST_FOLLOWED:
            self._passes.popleft().drop()

    def samples(self) -> Mapping[bool, Sequence[Sequence[Interval]]]:
        """The passes of each call. Those that began are over by the time of a later call, when this is asked."""
        for followed in list(self._passes):
            if followed.start is None or followed.end is None:
                continue
            try:
                self._passes.remove(followed)
            except ValueError:  # another thread was here
                continue
            followed.drop()
            self.done[followed.side].append((followed.forward, (followed.start, followed.end)))
        return self.done

    def drop(self) -> None:
        """Forgets all samples, and what was followed."""
        passes, self._passes = self._passes, deque()
        self.done, self.is_followed = {True: [], False: []}, False
        for followed in passes:
            followed.drop()
