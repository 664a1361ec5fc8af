"""Numbers in request headers as Java parses them: leading zeros and a plus sign are allowed.

Pure, any thread. The typed decoders accept the plain form only (remoting/typed_numbers.py, with the
ranges); what they reject is normalized here and decoded again.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from remoting.errors import HeaderError

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def plain_numbers(
    header: str,
    fields: Mapping[str, str],
    names: Collection[str],
    *,
    shown: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """`fields` with their numbers in plain form.

    Raises HeaderError naming `header` and the field that is not a number; `shown`: the long names
    of the fields.
    """
    plain = dict(fields)
    for name in names:
        text = fields.get(name)
        if text is None:
            continue
        if not _NUMBER.fullmatch(text):
            name = (shown or {}).get(name, name)
            raise HeaderError(header, name, f"{text!r:.60} is not a number")
        plain[name] = str(int(text))
    return plain
