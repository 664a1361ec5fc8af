"""The errors of this room; each message says where, what is expected, and the way out.

Raised to a starting process or to a request that changes a setting; the message is shown to the
operator unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

EXIT_OK = 0
EXIT_USAGE = 1
EXIT_BAD_SETTING = 253
EXIT_NO_HOME = 254
EXIT_CANNOT_START = 255


class ConfigError(Exception):
    """Unusable settings; `problems` has one line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


@contextmanager
def as_config_error(kind: type[Exception]) -> Iterator[None]:
    """What is raised of this kind within says what is wrong with the settings."""
    try:
        yield
    except kind as error:
        raise ConfigError([str(error)]) from error


class StartupExitError(Exception):
    """Ends a start: print `text` (to stdout where RocketMQ does) and exit with `exit_code`.

    The code is the one that a shell sees (RocketMQ's -1, -2, -3 are 255, 254, 253).
    """

    def __init__(self, exit_code: int, text: str, *, to_stdout: bool = True) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text
        self.to_stdout = to_stdout
