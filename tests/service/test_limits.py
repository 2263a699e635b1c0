"""Words for what bounds a plan's time (a launch, bytes, arithmetic, products), for every device that has a bound."""

import pytest

from codegen.hardware.gpus import GPUS, specified
from scheduler.cost.lower_bound import bound_by
from scheduler.cost.traffic import Traffic
from service.wording.limits import limit_words
from tests.support.stored_plans import DEVICE

TRAFFICS = {
    "a launch": Traffic(1, 1, 0, 0),
    "its bytes, from main memory": Traffic(1 << 36, 1 << 36, 0, 0),
    "its arithmetic": Traffic(1, 1, 1e15, 1e15),
    "its products of bf16": Traffic(1, 1, 1e17, 0, products=(("bf16", 1e17),)),
}


@pytest.mark.parametrize("target", [*GPUS, "cpu"])
def test_every_limit_has_words(target: str) -> None:
    ceilings = DEVICE.ceilings
    assert ceilings is not None
    rates = ceilings.model_copy(update={"product_gflops": (("bf16", 200.0),)})
    device = DEVICE.model_copy(update={"ceilings": rates}) if target == "cpu" else specified(target, "")
    assert {words: limit_words(bound_by(traffic, device)) for words, traffic in TRAFFICS.items()} == {
        words: words for words in TRAFFICS
    }


def test_what_is_in_a_cache_and_what_nobody_said() -> None:
    assert limit_words(bound_by(Traffic(30 << 20, 1, 0, 0), specified("h200", ""))) == "its bytes, from the cache"
    assert limit_words(None) == ""
    with pytest.raises(KeyError):
        limit_words("something else")
