"""A grid of a few blocks that runs PTX: its warps in turn, each until it cannot go on.

Copies and products that run by themselves come as late as they may: when somebody waits for them, or nobody can go on.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tests.support.ptx.memory import Clocks, Space
from tests.support.ptx.syntax import Module, PtxError, Variable
from tests.support.ptx.values import LANES, Array
from tests.support.ptx.warp import DONE, PARAMETERS, RUNS, Block, Cluster, Handler, TensorMap, Warp

GLOBAL = 0x7F0000000000  # where addresses of global memory begin
FIRST_SHARED = 1024  # the system's share lies in front of a block's memory
ROUNDS = 500
Argument = Array | int | TensorMap


class Machine:
    """A grid of `blocks` blocks of `threads` threads, `cluster` of them in a cluster, with a kernel's arguments.

    Arrays lie in global memory, copied; tensors of tensor maps stay where they are. registers: a thread's, to begin
    with. backwards: the last warp runs first. unit_ulps: errors of ex2.approx, rcp.approx and rsqrt.approx.
    """

    def __init__(
        self, module: Module, kernel: str, handlers: dict[str, Handler], arguments: Sequence[Argument], *,
        threads: int = LANES, blocks: int = 1, cluster: int = 1, shared_bytes: int = 0, registers: int = 168,
        backwards: bool = False, unit_ulps: int = 0,
    ) -> None:  # fmt: skip
        if kernel not in module.functions:
            raise PtxError(f"no kernel {kernel}")
        self.module, self.kernel, self.handlers = module, module.functions[kernel], handlers
        self.threads, self.registers, self.unit_ulps = threads, registers, unit_ulps
        self.clocks = Clocks(threads * blocks)
        self.addresses: dict[str, int] = {}
        self.maps: dict[int, TensorMap] = {}
        self.landing: list[Callable[[], None]] = []
        self.steps = 0
        self.arguments = arguments
        self._place_arguments()
        dynamic = FIRST_SHARED
        statics = [v for v in (*module.variables.values(), *self.kernel.variables) if v.space == "shared"]
        for variable in sorted(statics, key=lambda v: v.count == 0):  # what is dynamic comes last
            dynamic += -dynamic % variable.align
            if not variable.count:  # no better aligned than it says
                dynamic += -dynamic % FIRST_SHARED + variable.align % FIRST_SHARED
            self.addresses[variable.name] = dynamic
            dynamic += variable.bytes
        self.blocks: list[Block] = []
        for b in range(blocks):
            owner = Cluster(threads=threads * cluster) if b % cluster == 0 else self.blocks[-1].cluster
            shared = Space("shared", 0, dynamic + shared_bytes, self.clocks)
            shared.valid[:FIRST_SHARED] = False
            self.blocks.append(Block(b, owner, shared))
            owner.blocks.append(self.blocks[-1])
        self.warps = [
            Warp(self, block, first, min(LANES, threads - first))
            for block in self.blocks
            for first in range(0, threads, LANES)
        ]
        self.order = self.warps[::-1] if backwards else self.warps

    def _place_arguments(self) -> None:
        arrays = [a for a in self.arguments if isinstance(a, np.ndarray)]
        variables = [v for v in self.module.variables.values() if v.space in ("global", "const")]
        images = [np.ascontiguousarray(a).view(np.uint8).reshape(-1) for a in arrays] + [_image(v) for v in variables]
        starts: list[int] = []
        end = 256
        for image in images:
            starts.append(end)
            end += -(-image.size // 256) * 256 + 256
        valid = np.zeros(end, bool)
        self.memory = Space("global", GLOBAL, end, self.clocks, valid)
        for image, start in zip(images, starts, strict=True):
            self.memory.bytes[start : start + image.size] = image
            valid[start : start + image.size] = True
        for variable, start in zip(variables, starts[len(arrays) :], strict=True):
            self.addresses[variable.name] = GLOBAL + start
        self.array_starts = starts[: len(arrays)]
        places = iter(self.array_starts)
        self.parameters = np.zeros(0, np.uint8)
        if len(self.arguments) != len(self.kernel.parameters):
            raise PtxError(f"{len(self.arguments)} arguments for {len(self.kernel.parameters)} parameters")
        for argument, parameter in zip(self.arguments, self.kernel.parameters, strict=True):
            at = len(self.parameters) + -len(self.parameters) % max(parameter.align, 8)
            self.addresses[parameter.name] = PARAMETERS + at
            value = np.zeros(parameter.bytes, np.uint8)
            if isinstance(argument, TensorMap):
                self.maps[PARAMETERS + at] = argument
            else:
                number = argument if isinstance(argument, int) else GLOBAL + next(places)
                value[:] = np.frombuffer((number & (1 << 64) - 1).to_bytes(8, "little"), np.uint8)[: parameter.bytes]
            gap = np.zeros(at - len(self.parameters), np.uint8)
            self.parameters = np.concatenate([self.parameters, gap, value])

    def run(self) -> list[Array]:
        """Contents of the arrays among the arguments afterwards. Raises PtxError for what is undefined and what never
        ends."""
        rounds = 0
        with np.errstate(all="ignore"):
            while True:
                for warp in self.order:
                    warp.run()
                if all(w.done for w in self.warps):
                    break
                going = any((w.frame.status == RUNS).any() for w in self.warps)
                woken = [warp.wakes() for warp in self.order]
                going |= any(woken)
                rounds += 1
                if self.landing and (not going or rounds % 4 == 0):  # after others have looked in vain
                    self.landing.pop(0)()
                elif not going or rounds > ROUNDS:
                    raise PtxError(f"line {self._waiting_line()}: threads wait there for what never comes")
        if self.landing:
            raise PtxError("a copy is under way into a block that is through")
        if any(w.products or w.product_groups for w in self.warps):
            raise PtxError("a product is under way in a block that is through")
        arrays = [a for a in self.arguments if isinstance(a, np.ndarray)]
        return [
            self.memory.bytes[start : start + a.nbytes].copy().view(a.dtype).reshape(a.shape)
            for a, start in zip(arrays, self.array_starts, strict=True)
        ]

    def _waiting_line(self) -> int:
        """First line that a thread waits behind."""
        at = [w.frame.at[w.frame.status != DONE] for w in self.warps]
        return min(w.frame.code[int(a.min()) - 1].line for w, a in zip(self.warps, at, strict=True) if a.size)


def _image(variable: Variable) -> Array:
    """Bytes that a variable starts with."""
    size = variable.bytes // max(variable.count, 1)
    image = np.zeros(variable.bytes, np.uint8)
    for k, value in enumerate(variable.values):
        image[k * size : (k + 1) * size] = np.frombuffer((value & (1 << 64) - 1).to_bytes(8, "little")[:size], np.uint8)
    return image
