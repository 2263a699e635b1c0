"""Sets of tensors that a kernel is timed on in turn: more than caches hold, no more than a machine likes to give."""

from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen.child import cpu_bench, cpu_memory
from codegen.child.case import make_case
from codegen.child.cpu_memory import MOST_BYTES, MOST_COLD, MOST_SETS, rotating_sets
from tests.support.stored_plans import chain

MIB = 1 << 20
CACHES = st.integers(12, 31).map(lambda k: 1 << k)


@given(inputs=st.integers(0, 1 << 31), outputs=st.integers(1, 1 << 31), cache=CACHES)
def test_sets_are_larger_than_the_cache_twice_and_smaller_than_what_is_given_to_them(
    inputs: int, outputs: int, cache: int
) -> None:
    one = inputs + outputs
    sets = rotating_sets(inputs, one, cache)
    all_but_one = (sets - 1) * one
    assert sets >= 1
    assert sets == MOST_SETS or sets * one >= min(2 * cache, MOST_BYTES)
    assert all_but_one <= min(max(2 * cache + one, MOST_COLD * cache), MOST_BYTES + one)


def test_inputs_are_read_from_memory_where_outputs_go_past_the_cache() -> None:
    assert rotating_sets(33 * MIB, 34 * MIB, 32 * MIB) * 33 * MIB > 4 * 32 * MIB


def test_a_cache_of_half_a_gigabyte_does_not_take_four() -> None:
    """480 MiB, as a virtual machine of two cores names it: eight times that is what the rule without a limit makes."""
    assert rotating_sets(4 * MIB, 8 * MIB, 480 * MIB) * 8 * MIB <= MOST_BYTES


def test_cases_let_go_of_their_sets_for_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: OrderedDict[tuple[str, int], cpu_bench.Prepared] = OrderedDict()
    monkeypatch.setattr(cpu_memory, "MOST_BYTES", MIB)
    monkeypatch.setattr(cpu_bench, "MOST_BYTES", MIB)
    monkeypatch.setattr(cpu_bench, "_cases", cases)
    for number in range(3):
        prepared = cpu_bench.Prepared(make_case(chain(1000 * (number + 1), ["neg"]), 0))
        cases[str(number), 0] = prepared
        assert 0.9 * MIB <= prepared.timing_memory(480 * MIB).bytes <= 1.1 * MIB
        assert [c.timing_bytes > 0 for c in cases.values()] == [False] * number + [True]
    assert cases["0", 0].timing_memory(480 * MIB).sets > 1, "made again"
