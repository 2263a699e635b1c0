"""Lays out one graph with Graphviz, in a process of its own that can be killed: DOT on stdin, JSON on stdout.

Run as `python -m service.dashboard.layout_child`. Exit code 3: Graphviz is not there.
"""

import resource
import sys

from service.process import standard_output

MEMORY_BYTES = 2 * 2**30
MISSING = 3


def main() -> int:
    standard_output.claim()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        import pygraphviz  # noqa: PLC0415  whose absence is told by an exit code
    except ImportError as error:
        print(error, file=sys.stderr)
        return MISSING
    graph = pygraphviz.AGraph(string=sys.stdin.read())
    try:
        drawn = graph.draw(format="json0", prog="dot")
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return MISSING if "not found" in str(error) else 1
    if not isinstance(drawn, bytes):
        return 1
    sys.stdout.buffer.write(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
