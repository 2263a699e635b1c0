"""The plot of searches: every point is drawn, in its panel, where a logarithmic axis has it."""

from xml.etree import ElementTree

import pytest

from benchmarks.search.page import Row, panels
from benchmarks.search.plot import GAP, HEIGHT, LEFT, TOP, WIDTH, Panel, panels_svg

SVG = "{http://www.w3.org/2000/svg}"


def test_points_lie_at_their_decades() -> None:
    line = [(10.0, 1.0), (100.0, 10.0), (1000.0, 100.0)]
    text = panels_svg([Panel("a & b", {"chains": line}, {}), Panel("none", {}, {})], columns=2)
    drawn = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in ElementTree.fromstring(text).iter(f"{SVG}circle")]
    assert drawn == [(LEFT + WIDTH * i / 2, TOP + HEIGHT * (2 - i) / 2) for i in range(3)]


def test_rows_become_panels_by_target_and_lines_by_kind() -> None:
    rows = [
        Row("layers 24", "cpu", nodes=2857, seconds={"cover": 3.0, "tune": 4.0}, peak_mib=300),
        Row("layers 12", "cpu", nodes=1465, seconds={"cover": 1.0, "tune": 1.5}, peak_mib=280),
        Row(
            "layers 12 alike", "cpu", nodes=1239, seconds={"prepare": 0.5, "cut": 0.5, "candidates": 1.0, "cover": 2.0}
        ),
        Row("layers 100", "h200", problem="stopped after 290 s"),
        Row("chains 8", "h200", nodes=107, seconds={"cover": 1.0, "tune": 0.25}, peak_mib=250),
    ]
    cpu_s, cpu_mib, h200_s, _ = panels(rows)
    assert cpu_s.lines == {"layers alike": [(1239, 4.0)], "layers": [(1465, 1.5), (2857, 4.0)]}
    assert cpu_mib.lines["layers"] == [(1465, 280), (2857, 300)]
    assert cpu_s.limits == {"layers 12": (1465, 2.0)}
    assert h200_s.lines == {"chains": [(107, 0.25)]}
    root = ElementTree.fromstring(panels_svg([cpu_s, h200_s], columns=2))
    assert len(list(root.iter(f"{SVG}circle"))) == 4
    assert float(root.attrib["viewBox"].split()[2]) == pytest.approx(LEFT + 2 * (WIDTH + GAP))
