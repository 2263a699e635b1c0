"""Coalescing: adjacent digits become one axis wherever every access steps through them as through one.

x[4 * i0 + i1], i1 < 4   ->   x[i2], i2 = 4 * i0 + i1          (coef(hi) = extent(lo) * coef(lo) everywhere)
where one access differs, a lane run still merges them:  a[i2 % 4], repeated every 4 lanes
"""

from collections.abc import Sequence

from codegen.lowering.index import Affine, Axes, Axis, digit, var
from codegen.lowering.value import cone
from codegen.lowering.write import Write, expressions, rewritten


def coalesce(writes: Sequence[Write], axes: Axes) -> list[Write]:
    """Merges pairs of axes until no pair steps as one in every expression."""
    merged = list(writes)
    while True:
        pair = _pair(merged)
        if pair is None:
            return merged
        hi, lo = pair
        run = axes.new(hi.extent * lo.extent)
        mapping = {hi: Affine(), lo: var(run)}
        merged = rewritten(
            merged, lambda e, m=mapping: e.subst(m), lambda own, h=hi, l=lo, r=run: _replace(own, h, l, r)
        )


def _pair(writes: Sequence[Write]) -> tuple[Axis, Axis] | None:
    used = expressions(writes)
    values = cone(w.value for w in writes)
    scans = [v.scanned for v in values if v.scanned]
    # Who owns axes: writes those of their nests, reductions and scans those they run over.
    owners = [w.axes for w in writes] + [v.bound for v in values if v.bound] + scans
    for e in used:
        for hi, k in e.terms:
            for lo, q in e.terms:
                if not (isinstance(hi, Axis) and isinstance(lo, Axis) and k == q * lo.extent):
                    continue
                together = all((hi in own) == (lo in own) for own in owners)
                in_order = all(own.index(lo) == own.index(hi) + 1 for own in scans if hi in own and lo in own)
                if together and in_order and all(e.coef(hi) == lo.extent * e.coef(lo) for e in used):
                    return hi, lo
    return None


def _replace(own: tuple[Axis, ...], hi: Axis, lo: Axis, run: Axis) -> tuple[Axis, ...]:
    return tuple(run if a is hi else a for a in own if a is not lo) if hi in own else own


def merge_run(writes: Sequence[Write], hi: Axis, lo: Axis, axes: Axes) -> tuple[list[Write], Axis]:
    """Merges hi and lo into one axis although some accesses do not step through them as one: they get its digits."""
    run = axes.new(hi.extent * lo.extent)
    high, low = digit(var(run), lo.extent, hi.extent), digit(var(run), 1, lo.extent)

    def change(e: Affine) -> Affine:
        whole = e.coef(hi) == lo.extent * e.coef(lo) and not {hi, lo} & e.opaque_axes
        return e.subst({hi: Affine(), lo: var(run)} if whole else {hi: high, lo: low})

    return rewritten(writes, change, lambda own: _replace(own, hi, lo, run)), run
