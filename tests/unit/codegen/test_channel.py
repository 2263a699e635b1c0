"""The child's way to its parent."""

import json
import os
import threading
from typing import Any

from codegen.child.serve import Channel
from codegen.sandbox.child_process import LENGTH
from codegen.sandbox.heartbeat import Heartbeat


def test_nothing_is_timed_before_the_parent_has_seen_to_quiet() -> None:
    """It stops compilers first, which work on the same CPUs."""
    request, asked = os.pipe()
    answer, answered = os.pipe()
    page = os.memfd_create("progress")
    os.ftruncate(page, Heartbeat.SIZE)
    begun, ended = threading.Event(), threading.Event()

    def heard() -> dict[str, Any]:
        size: int = LENGTH.unpack(os.read(answer, LENGTH.size))[0]
        return json.loads(os.read(answer, size))

    with os.fdopen(request, "rb") as requests:
        channel = Channel(answered, Heartbeat(page), requests)

        def child() -> None:
            with channel.timing():
                begun.set()
            ended.set()

        thread = threading.Thread(target=child, daemon=True)
        thread.start()
        assert heard() == {"times": True}
        assert not begun.wait(0.1)
        os.write(asked, LENGTH.pack(0))
        assert begun.wait(20)
        assert heard() == {"times": False}
        assert not ended.wait(0.1)
        os.write(asked, LENGTH.pack(0))
        assert ended.wait(20)
        thread.join()
    for descriptor in (asked, answer, answered):
        os.close(descriptor)
