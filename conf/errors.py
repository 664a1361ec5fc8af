"""The errors of the conf room; each text says where, what is expected, and the way out.

Raised to the process that starts or to the request that changes a setting; whoever catches one
prints the text as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_OK = 0
EXIT_USAGE = 1
EXIT_BAD_SETTING = 253
EXIT_NO_HOME = 254
EXIT_CANNOT_START = 255


class ConfigError(Exception):
    """Settings that cannot be used; `problems` holds one line for each of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class StartupExitError(Exception):
    """Ends a start: print `text` (to stdout where the original does) and exit with `exit_code`.

    The code is the one a shell sees (the original's -1, -2, -3 are 255, 254, 253).
    """

    def __init__(self, exit_code: int, text: str, *, to_stdout: bool = True) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text
        self.to_stdout = to_stdout
