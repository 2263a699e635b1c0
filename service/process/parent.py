"""A process that ends with the one that started it, whatever it is doing."""

import os
import select
import signal
import threading

GRACE_SECONDS = 5.0  # for work to be given back, before the process ends as it is


def end_with(parent: int) -> None:
    """From now on the end of process `parent` sends this one SIGTERM at once, and ends it GRACE_SECONDS later whatever
    it does. To be called by the main thread. A parent that is gone already counts as one that ends now.

    A thread waits for the parent without turning. The main thread is woken where it waits for something itself.
    """
    main = threading.get_ident()

    def watch() -> None:
        try:
            descriptor = os.pidfd_open(parent)
        except ProcessLookupError:
            descriptor = None
        if descriptor is not None:
            # Another process may have the number by now, if ours ended before it was opened.
            if os.getppid() == parent:
                poll = select.poll()
                poll.register(descriptor, select.POLLIN)
                poll.poll()
            os.close(descriptor)
        signal.pthread_kill(main, signal.SIGTERM)
        threading.Event().wait(GRACE_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
