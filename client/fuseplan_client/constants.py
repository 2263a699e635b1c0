"""Results of a prologue, by the constants that they were computed of: a model of equal layers has one plan for all of
them, and constants for each."""

import sys
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, Generic, Protocol, TypeVar

Known = tuple[tuple[int, Any], ...]  # address and version of each constant that the prologue reads

MOST = 128  # sets of constants
ALONE = 3  # references to a constant that nobody but its result, and who counts them, has


class Kept(Protocol):
    """Results for some constants. held: these, so that nothing else lies at their addresses."""

    @property
    def known(self) -> Known: ...

    @property
    def held(self) -> Sequence[Any]: ...


T = TypeVar("T", bound=Kept)


class ByConstants(Generic[T]):
    """The last results of each set of constants, by where these lie. They go with another version of the constants,
    with constants that lie elsewhere now or that nobody else has any more, and the oldest where there are more than
    MOST. last: those that were found or made last. Any number of threads may look; who adds to it has a lock.

    Equal addresses and versions are not enough: where a constant lay, another one may lie by now with the same count of
    writes, or the same one, with writes that nobody counted (PyTorch's `.data =`). Of the last results the constants
    still have to lie there; of others they have to be the same objects, too, which were nowhere else meanwhile.
    """

    def __init__(self) -> None:
        self.last: T | None = None
        self._by_place: dict[tuple[int, ...], T] = {}

    def get(self, known: Known, constants: Sequence[Any]) -> T | None:
        """The results for these constants, if they are there."""
        kept = self.last
        if kept is not None and kept.known == known and _lie_there(kept, constants):
            return kept
        kept = self._by_place.get(_places(known))
        if kept is None or kept.known != known or not _are_same(kept, constants):
            return None
        self.last = kept
        return kept

    def made(self, known: Known, constants: Sequence[Any], make: Callable[[], T]) -> T:
        """The results for these constants, made now unless another thread was faster."""
        kept = self.get(known, constants)
        if kept is None:
            own = set(map(id, constants))
            for places, other in list(self._by_place.items()):
                moved = not own.isdisjoint(map(id, other.held))
                if moved or all(sys.getrefcount(tensor) <= ALONE for tensor in other.held):
                    del self._by_place[places]
            while len(self._by_place) >= MOST:
                del self._by_place[next(iter(self._by_place))]
            kept = self.last = self._by_place[_places(known)] = make()
        return kept

    def clear(self) -> None:
        """Forgets them all."""
        self.last, self._by_place = None, {}


def _places(known: Known) -> tuple[int, ...]:
    return tuple([address for address, _ in known])


def _are_same(kept: Kept, constants: Sequence[Any]) -> bool:
    return all(map(is_, kept.held, constants))


def _lie_there(kept: Kept, constants: Sequence[Any]) -> bool:
    """Whether constants of the same addresses have the same memory: those that are held were put nowhere else."""
    if _are_same(kept, constants):
        return True
    return all(_address(t, there) == there for t, (there, _) in zip(kept.held, kept.known, strict=True))


def _address(tensor: Any, otherwise: int) -> int:
    """Where a tensor lies now; only PyTorch's can be put elsewhere."""
    return tensor.data_ptr() if hasattr(tensor, "data_ptr") else otherwise
