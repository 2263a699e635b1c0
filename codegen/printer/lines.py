"""Lines of a kernel's body, and the braces that are open around the next one."""

from collections.abc import Generator
from contextlib import contextmanager

from codegen.lowering.value import Value


class Lines:
    """The lines printed so far. scopes: the values declared, by open brace."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.indent = 1
        self.scopes: list[set[Value]] = [set()]

    def add(self, text: str) -> None:
        self.text.append("  " * self.indent + text)

    @contextmanager
    def braces(self, head: str) -> Generator[None]:
        """A context in which lines are printed inside braces behind `head`."""
        self.add(f"{head} {{".lstrip())
        self.indent += 1
        self.scopes.append(set())
        yield
        self.scopes.pop()
        self.indent -= 1
        self.add("}")

    def is_declared(self, v: Value) -> bool:
        """Whether an open brace has declared a value."""
        return any(v in scope for scope in self.scopes)
