"""Errors of the client: a class for each thing that a caller may do something about, each with a reason."""

SHOWN_CHARACTERS = 500  # of a text that came from elsewhere


class PlanServerError(Exception):
    """No usable answer. reason: why, and where it can be said, what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class BadArgument(PlanServerError, ValueError):
    """The caller gave something that no request can be made of."""


class ServerAbsent(PlanServerError):
    """No connection to the server could be made, or it was lost before an answer began."""


class ServerSlow(PlanServerError):
    """The server was connected to and gave no whole answer in time."""


class BadAnswer(PlanServerError):
    """The answer cannot be used: no JSON, JSON of a wrong shape, too large, or not what its key says."""


class AnswerCutOff(BadAnswer):
    """The connection was lost in the middle of an answer."""


class Untrusted(PlanServerError):
    """An answer is not signed by a key that is trusted, or there is no such key."""


class ProblemAnswer(PlanServerError):
    """The server refused the request with a problem document (RFC 9457), or with a status alone.

    type: the problem's slug, such as "bad-graph"; "" where the answer was no problem document. place: a JSON pointer, a
    line and column, or the name of a parameter or header. retry_after_s: seconds after which the server wants to be
    asked again, None where it does not say.
    """

    def __init__(
        self,
        status: int,
        type_: str = "",
        title: str = "",
        detail: str = "",
        place: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        self.status, self.type, self.title, self.detail = status, type_, title, detail
        self.place, self.retry_after_s = place, retry_after_s
        where = f" (at {place})" if place else ""
        what = ": ".join(filter(None, (title, detail))) or "no reason was given"
        super().__init__(f"the server refused the request with status {status}: {what}{where}")


def shown(text: str, most: int = SHOWN_CHARACTERS) -> str:
    """One printable line of a text from elsewhere, at most so many characters long."""
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(line) <= most else line[: most - 1] + "…"
