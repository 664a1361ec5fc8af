"""Which characters a name must not have that is shown in lines: of the log, of tables, of metrics.

Pure, any thread. Such a character ends a line, or moves a terminal's cursor: what follows would be
read as somebody else's words. Room `remoting`, since brokers and name servers judge the same names.
"""

from __future__ import annotations

import re
from typing import Final

_find: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]").search


def holds_control(text: str) -> bool:
    """Whether `text` has a control character or a line separator."""
    return _find(text) is not None
