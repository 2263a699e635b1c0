"""Alternatives on random graphs: what rules offer has the values of what it stands beside, alone and together, within
its class (`tests.support.offers`). FUSEPLAN_RANDOM_GRAPHS sets how many.
"""

import os
from collections import Counter

import pytest

from fusion_ir.dtype import bf16, f32, f64
from scheduler.rewrites import ALTERNATIVES
from tests.support.offers import Checked

GRAPHS = int(os.environ.get("FUSEPLAN_RANDOM_GRAPHS", "200"))
DTYPES = (f64, f32, bf16)
ELSEWHERE = {"powers"}  # which take sums of magnitudes out of proportion: test_offers.py


def test_random_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    matched: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in range(GRAPHS):
        checked = Checked(seed, DTYPES[seed % len(DTYPES)])
        matched.update(offer.name for offer, _, _ in checked.found)
        wrong += checked.wrong
    with capsys.disabled():
        print(f"\n{GRAPHS} graphs: " + ", ".join(f"{name} {count}" for name, count in sorted(matched.items())))
    assert not wrong, "\n".join(wrong[:3])
    assert min(matched[offer.name] for offer in ALTERNATIVES if offer.name not in ELSEWHERE) >= GRAPHS // 10
