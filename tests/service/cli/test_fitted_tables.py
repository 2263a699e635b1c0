"""Tables at a width: what must not be cut is not, what does not fit is left out in its order."""

import io
import itertools

import pytest
from rich.console import Console

from service.cli.fitted_tables import Column, Fitted, TableLayout

KEY, NUMBER, TEXT = "581663bc7fa0", "1.16 ms", "lanes=64, fetch=1024, store=stream, tile=1024"
COLUMNS = (
    Column("plan"),
    Column("schedule", least=14),
    Column("time", right=True),
    Column("hits", right=True, rank=2),
    Column("age", right=True, rank=1),
)
LAYOUT = TableLayout(COLUMNS, [(KEY, TEXT, NUMBER, "12,345", "16 min ago"), (KEY, "direct", "–", "0", "just now")])


def printed(width: int, *layouts: TableLayout) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width).print(Fitted(*layouts))
    return [line.rstrip() for line in text.getvalue().splitlines()]


@pytest.mark.parametrize("width", range(40, 130))
def test_nothing_is_cut_at_any_width(width: int) -> None:
    lines = printed(width, LAYOUT)
    assert max(map(len, lines)) <= width
    text = " ".join(itertools.chain.from_iterable(line.split() for line in lines))
    assert text.count(KEY) == 2
    assert NUMBER in text
    assert "…" not in text
    for word in TEXT.split():
        assert word in text


def test_columns_are_left_out_by_their_rank() -> None:
    heads = [printed(width, LAYOUT)[0].split() for width in range(130, 39, -1)]
    seen = [head for head, _ in itertools.groupby(heads)]
    assert seen == [
        ["plan", "schedule", "time", "hits", "age"],
        ["plan", "schedule", "time", "age"],
        ["plan", "schedule", "time"],
    ]


def test_the_first_layout_that_fits_is_shown() -> None:
    short = TableLayout(COLUMNS[:1], [row[:1] for row in LAYOUT.rows])
    assert printed(100, LAYOUT, short)[0].split()[1:2] == ["schedule"]
    assert printed(40, LAYOUT, short)[0].split() == ["plan"]


def test_where_not_all_that_stays_fits_the_last_columns_go_and_texts_are_as_narrow_as_their_words() -> None:
    layout = TableLayout((Column("plan"), Column("what it computes", least=20), Column("time")), [(KEY, TEXT, NUMBER)])
    shown = {width: " ".join(printed(width, layout)) for width in (42, 36, 25)}
    assert [("lanes=64," in text, "time" in text) for text in shown.values()] == [
        (True, True),
        (True, False),
        (False, False),
    ]
    for width in range(13, 60):
        lines = printed(width, layout)
        assert max(map(len, lines)) <= width
        assert any(KEY in line for line in lines), "a key is whole as long as it fits alone"
        assert sum(NUMBER in line for line in lines) == any("time" in line for line in lines)


def test_where_not_even_the_first_column_fits_it_is_wrapped() -> None:
    lines = printed(9, TableLayout((Column("plan"), Column("time")), [(KEY, NUMBER)]))
    assert max(map(len, lines)) <= 9
    assert "".join(lines[2:]).replace(" ", "") == KEY
    assert "…" not in "".join(lines)


def test_no_rows_are_a_heading() -> None:
    assert printed(80, TableLayout(COLUMNS, []))[0].split() == ["plan", "schedule", "time", "hits", "age"]
