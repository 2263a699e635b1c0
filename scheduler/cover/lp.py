"""The linear relaxation of covering: at least one column of each row is taken.

    minimise  sum of cost[j] x[j]  over x >= 0,  such that  sum of x[j] over the columns j of a row  >=  1  for each row

Solved by HiGHS's dual simplex, which goes on from where it was when rows, costs or bounds have changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TOLERANCE = 1e-9  # of the solver, on reduced costs and on rows
DEVEX = 1
MOST_ITERATIONS = 100_000  # of one solution: layers by the hundred take some thousand
# Each solution differs in little from the one before: perturbed costs would take four times the iterations, and exact
# weights of edges longer than what they save.
QUICK = {
    "dual_simplex_cost_perturbation_multiplier": 0.0,
    "simplex_dual_edge_weight_strategy": DEVEX,
    "simplex_iteration_limit": MOST_ITERATIONS,
}
SAFE = {  # against cycles
    "dual_simplex_cost_perturbation_multiplier": 1.0,
    "simplex_dual_edge_weight_strategy": -1,
    "simplex_iteration_limit": highspy.kHighsIInf,
}


class Optimum(NamedTuple):
    """value: of the relaxation. x: by column. duals: by row."""

    value: float
    x: Floats
    duals: Floats


class QuietHighs(highspy.Highs):
    """HiGHS without the banner that its constructor prints at the first call other than setting an option."""

    def enableCallbacks(self) -> None:
        """Turns output off before the banner; called by the constructor."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()


class Relaxation:
    """`rows_of`: by column, the rows that it is in, of `rows` in all. Columns cost nothing until they are priced."""

    def __init__(self, rows_of: Sequence[Sequence[int]], rows: int) -> None:
        self.columns = len(rows_of)
        self.rows = rows
        self._starts = np.zeros(self.columns + 1, dtype=np.int32)
        np.cumsum([len(r) for r in rows_of], out=self._starts[1:])
        self._entries = np.fromiter((r for of in rows_of for r in of), np.int32, int(self._starts[-1]))
        self._column_of = np.repeat(np.arange(self.columns), np.diff(self._starts))  # by entry
        self.unit = 1.0  # of costs inside the solver
        self._added: list[NDArray[np.int32]] = []
        self.costs = np.zeros(self.columns)
        self.forbidden = np.zeros(self.columns, dtype=bool)
        self._solver: Any = QuietHighs()
        options = {"output_flag": False, "presolve": "off", "solver": "simplex", "threads": 1}
        options |= {"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE}
        self._set(options)
        self._solver.passModel(self._model())

    def _set(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            self._solver.setOptionValue(name, value)

    def _model(self) -> Any:
        lp: Any = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, self.rows
        lp.col_cost_ = self.costs
        lp.col_lower_, lp.col_upper_ = np.zeros(self.columns), np.full(self.columns, highspy.kHighsInf)
        lp.row_lower_, lp.row_upper_ = np.ones(self.rows), np.full(self.rows, highspy.kHighsInf)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_, lp.a_matrix_.index_ = self._starts, self._entries
        lp.a_matrix_.value_ = np.ones(len(self._entries))
        return lp

    def price(self, columns: Sequence[int], costs: "Sequence[float] | Floats") -> None:
        """Sets the costs of columns: finite, not negative."""
        self.costs[columns] = costs
        self._solver.changeColsCost(len(columns), np.array(columns, np.int32), self.costs[columns] / self.unit)

    def rescale(self, columns: Sequence[int], costs: Floats) -> None:
        """Chooses the unit of costs inside the solver, whose tolerances are absolute. A column's cost is shared by its
        rows; the unit is the mean over rows of the least such share of a column that may be taken. `price` uses it."""
        self.costs[columns] = costs
        in_all = np.diff(self._starts)
        share = np.full(self.rows, np.inf)
        usable = ~self.forbidden[self._column_of]
        np.minimum.at(share, self._entries[usable], (self.costs / np.maximum(in_all, 1))[self._column_of[usable]])
        known = share[np.isfinite(share) & (share > 0)]
        self.unit = float(known.mean()) if len(known) else 1.0

    def forbid(self, forbidden: NDArray[np.bool_]) -> None:
        """Forbids the columns marked, and allows all others."""
        changed = np.flatnonzero(forbidden != self.forbidden).astype(np.int32)
        upper = np.where(forbidden[changed], 0.0, highspy.kHighsInf)
        self._solver.changeColsBounds(len(changed), changed, np.zeros(len(changed)), upper)
        self.forbidden = forbidden.copy()

    def add_row(self, columns: Iterable[int]) -> int:
        """Adds a row of these columns; returns its number."""
        entries = np.fromiter(columns, np.int32)
        self._solver.addRow(1.0, highspy.kHighsInf, len(entries), entries, np.ones(len(entries)))
        self._added.append(entries)
        return self.rows + len(self._added) - 1

    def demand(self, row: int, at_least: float) -> None:
        """Sets the lower limit of the row's sum, which is 1 at first."""
        self._solver.changeRowBounds(row, at_least, highspy.kHighsInf)

    def solve(self) -> Optimum | None:
        """The optimum; None where some row has no column left. Raises RuntimeError where the solver finds neither."""
        status = None
        for ways in (QUICK, SAFE):
            self._set(ways)
            self._solver.run()
            status = self._solver.getModelStatus()
            if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kModelEmpty):
                return None
            if status == highspy.HighsModelStatus.kOptimal:
                solution = self._solver.getSolution()
                value = self.unit * self._solver.getObjectiveValue()
                return Optimum(value, np.array(solution.col_value), self.unit * np.array(solution.row_dual))
            self._solver.clearSolver()  # lost on its way from the last optimum, or in a circle: from the beginning
        raise RuntimeError(f"the relaxation was not solved: {status}")

    def reduced(self, duals: Floats) -> Floats:
        """Reduced costs by column: its cost less the duals of its rows."""
        sums = np.bincount(self._column_of, duals[self._entries], self.columns)
        for row, columns in enumerate(self._added, self.rows):
            sums[columns] += duals[row]
        return self.costs - sums

    def packed(self, duals: Floats) -> Floats:
        """Duals, not negative, lowered a little where a column that may be taken has a negative reduced cost."""
        duals = np.maximum(duals, 0.0)
        reduced = self.reduced(duals)
        for j in np.flatnonzero((reduced < 0) & ~self.forbidden):
            rows = [*self._entries[self._starts[j] : self._starts[j + 1]]]
            rows += [self.rows + i for i, columns in enumerate(self._added) if j in columns]
            left = -float(reduced[j])
            for row in rows:
                less = min(left, float(duals[row]))
                duals[row] -= less
                left -= less
        return duals
