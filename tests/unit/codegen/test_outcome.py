"""The detail in words that a measurement's row has for a timed kernel."""

from codegen.workbench.outcome import timed


def test_times_in_a_row_have_their_units() -> None:
    timing = {"samples_us": [19000.0], "note": "", "sets": 3, "warm_us": 18910.0}
    assert timed(timing, None, None).detail == "cold, 3 input sets in turn; warm 18.9 ms"
    assert timed(timing | {"sets": 1, "warm_us": None}, None, None).detail == "cold"
