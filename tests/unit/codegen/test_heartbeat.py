"""The shared page: whatever the moment, a reader sees a note as it was written."""

import os

from codegen.sandbox.heartbeat import NOBODY, Heartbeat


def pair() -> tuple[Heartbeat, Heartbeat]:
    descriptor = os.memfd_create("progress")
    os.ftruncate(descriptor, Heartbeat.SIZE)
    ends = Heartbeat(descriptor), Heartbeat(descriptor)
    os.close(descriptor)
    return ends


def test_a_note_is_read_as_written() -> None:
    child, parent = pair()
    assert parent.read() == (0, 0, 0.0)
    child.note(NOBODY, 4.0)
    assert parent.read() == (1, NOBODY, 4.0)
    child.note(7, 0.25)
    assert parent.read() == (2, 7, 0.25)
    child.close()
    parent.close()


def test_no_reader_ever_sees_half_a_note() -> None:
    """Another process writes as fast as it can. Program and seconds belong together, and the count never goes back."""
    child, parent = pair()
    child.note(0, 0.0)
    writer = os.fork()
    if writer == 0:
        for i in range(1, 300_000):
            child.note(i, float(i))
        os._exit(0)
    last, whole = 0, 0
    while os.waitpid(writer, os.WNOHANG) == (0, 0):
        before = parent.read()
        after = parent.read()
        assert after[0] >= before[0] >= last
        assert before[0] > 0
        if after[0] == before[0]:  # no note came between
            assert before[2] == float(before[1])
            whole += 1
        last = after[0]
    assert parent.read() == (300_000, 299_999, 299_999.0)
    assert whole
