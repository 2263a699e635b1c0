"""Tables that fit the terminal: columns that do not fit are left out in an order that is said, and nothing is cut."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

Cell = str | Text
APART, CLOSE = 3, 2  # cells between columns
LONG_WORD = 24  # characters of the longest word that a narrow column still keeps on one line


@dataclass(frozen=True)
class Column:
    """A column of a table. least: the smallest width in cells that its text is wrapped to; None for a key, a number or
    a state, which stay on one line. rank: where not all columns fit, the highest rank is left out first; columns of
    rank 0 are left out last, from the right, once texts are as narrow as their words. The first column stays."""

    name: str
    right: bool = False
    least: int | None = None
    rank: int = 0


@dataclass(frozen=True)
class TableLayout:
    """Columns, and rows with a cell for each."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    def table(self, width: int) -> Table:
        """A table of as many columns as fit into `width` cells, closer together before any is left out. Where not even
        the first column fits, it is wrapped."""
        shown = list(range(len(self.columns)))
        while self._least(shown, CLOSE) > width and (low := [i for i in shown if self.columns[i].rank]):
            shown.remove(max(low, key=lambda i: self.columns[i].rank))
        narrow = self._least(shown, CLOSE) > width
        while self._least(shown, CLOSE, narrow) > width and len(shown) > 1:
            shown.pop()
        fits, is_wide = self._least(shown, CLOSE, narrow) <= width, self._least(shown, APART) <= width
        padding = (0, 1) if is_wide else (0, 0, 0, 1)
        widths = self._widths(shown, width, APART if is_wide else CLOSE, narrow) if fits else {}
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="bold", padding=padding)
        for i in shown:
            column = self.columns[i]
            table.add_column(
                column.name,
                justify="right" if column.right else "left",
                no_wrap=column.least is None and fits,
                overflow="fold",
                width=widths.get(i),
            )
        for row in self.rows:
            table.add_row(*(row[i] for i in shown))
        return table

    def fits(self, width: int) -> bool:
        """Whether all columns fit into `width` cells."""
        return self._least(range(len(self.columns)), CLOSE) <= width

    def _least(self, shown: Sequence[int], between: int, narrow: bool = False) -> int:
        """Cells of a line, with those between columns and at either end."""
        return sum(self._width(i, narrow) + between for i in shown)

    def _widths(self, shown: Sequence[int], width: int, between: int, narrow: bool) -> dict[int, int]:
        """Cells of each column: what is left beyond the least goes to those that are wrapped, by what they lack."""
        left = width + 1 - self._least(shown, between, narrow)  # nothing stands behind the last column
        lacks = {i: self._most(i) - self._width(i, narrow) for i in shown}
        lacking = sum(lacks.values())
        return {
            i: self._width(i, narrow) + (min(lacks[i], left * lacks[i] // lacking) if lacking else 0) for i in shown
        }

    def _width(self, column: int, narrow: bool) -> int:
        """Cells that the column takes at the least. narrow: as its words have them, whatever it says itself."""
        least, most = self.columns[column].least, self._most(column)
        if least is None:
            return most
        if narrow:
            return min(self._longest_word(column), LONG_WORD)
        return max(_widest_line(self.columns[column].name), min(least, most))

    def _longest_word(self, column: int) -> int:
        """Cells of the longest word in the column, its name's among them."""
        cells = (self.columns[column].name, *(row[column] for row in self.rows))
        words = (word for cell in cells for word in (cell.plain if isinstance(cell, Text) else cell).split())
        return max(map(cell_len, words), default=1)

    def _most(self, column: int) -> int:
        """Cells with which nothing in the column is wrapped."""
        return max(map(_widest_line, (self.columns[column].name, *(row[column] for row in self.rows))))


def _widest_line(cell: Cell) -> int:
    text = cell if isinstance(cell, Text) else Text(cell)
    return max((line.cell_len for line in text.split("\n", allow_blank=True)), default=0)


class Fitted:
    """The first layout whose columns all fit, else what fits of the last one."""

    def __init__(self, *layouts: TableLayout) -> None:
        self._layouts = layouts

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        layout = next((one for one in self._layouts if one.fits(width)), self._layouts[-1])
        yield layout.table(width)
