"""MessageRequestMode: how a group gets its messages. A setting and bodies of requests have it.

Pure data, any thread; alone in its module, since whoever reads settings needs no bodies.

Its use as it is: tests/broker/client/test_query_assignment_processor.py.
"""

from __future__ import annotations

from enum import StrEnum


class MessageRequestMode(StrEnum):
    """Whether the members of a group pull queues of their own or pop."""

    PULL = "PULL"
    POP = "POP"
