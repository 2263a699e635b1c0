"""How candidates end: apart from the records, as processes that time kernels start without those."""

from enum import Enum


class Status(str, Enum):
    """How a candidate ended. Only `ok` can win."""

    ok = "ok"
    rejected = "rejected"  # the family cannot emit it
    compile_failed = "compile_failed"
    compile_timeout = "compile_timeout"
    crashed = "crashed"
    timed_out = "timed_out"
    out_of_memory = "out_of_memory"
    wrong_result = "wrong_result"
    dropped = "dropped"  # compiled, but its report says that it is not worth timing
