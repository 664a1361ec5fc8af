"""Which settings and fields are secrets, by their names: nobody shows, logs or keeps their values.

Pure, any thread; imports the standard library only. Java's settings are among what it judges, so it
goes by words; it must not know what a key is for.
"""

from __future__ import annotations

import re
from typing import Final

_SECRET: Final = re.compile(
    r"passw|passphrase|secret|credential|token|private|accesskey|initauthenticationuser", re.I
)

HIDDEN: Final = "(hidden)"
"""What is shown in place of a secret."""


def is_secret_name(name: str) -> bool:
    """Whether what has this name is a secret, as far as names tell."""
    return _SECRET.search(name) is not None


def without_secret(name: str, value: str) -> str:
    """What may be shown of it: of a secret only that there is one."""
    return HIDDEN if value and is_secret_name(name) else value
