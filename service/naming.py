"""Tensors of a plan by the names that the sender of its graph knows them by: "q", where the plan says in0."""

from collections.abc import Sequence
from dataclasses import dataclass

from fusion_ir.records import Ref

MOST_CHARACTERS = 24  # of a name in a table
MOST_NAMES = 6  # of those that stand in one cell
_PLACES = ("in", "tmp", "out")


@dataclass(frozen=True)
class Naming:
    """Names of a graph's inputs and outputs, in order; none where nobody knows them."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    def of(self, ref: Ref) -> str:
        """The name of an input or output, shortened in the middle where it is long; what the plan says of others."""
        names = {"in": self.inputs, "out": self.outputs}.get(ref.place, ())
        name = names[ref.index] if ref.index < len(names) else ""
        if len(name) > MOST_CHARACTERS:
            name = f"{name[: MOST_CHARACTERS - 8]}…{name[-7:]}"
        return name or str(ref)

    def list_of(self, refs: Sequence[Ref]) -> str:
        """ "q k tmp0…2": inputs, temporaries, outputs; those without a name of their own, and temporaries, in runs; of
        many the first ones and how many more."""
        words: list[str] = []
        run: list[Ref] = []
        for ref in (*sorted(refs, key=lambda r: (_PLACES.index(r.place), r.index)), None):
            if run and (
                ref is None or ref.place != run[-1].place or ref.index != run[-1].index + 1 or self._named(ref)
            ):
                words.append(f"{run[0]}{f'…{run[-1].index}' if len(run) > 1 else ''}")
                run = []
            if ref is None:
                break
            if self._named(ref):
                words.append(self.of(ref))
            else:
                run.append(ref)
        more = f" and {len(words) - MOST_NAMES} more" if len(words) > MOST_NAMES + 1 else ""
        return " ".join(words[:MOST_NAMES] if more else words) + more

    def _named(self, ref: Ref) -> bool:
        return self.of(ref) != str(ref)


UNNAMED = Naming()
