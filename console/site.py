"""Which pages and actions the console has, and which metrics it asks for again and again.

Data only. The order is that of the navigation.

Tested by tests/console/test_site.py.
"""

from __future__ import annotations

from typing import Any, Final

from console.lanes import Question
from console.page import Action, View
from console.views import dead_letters, jobs, messages, overview, replication

VIEWS: Final[tuple[View, ...]] = (
    *overview.VIEWS,
    *replication.VIEWS,
    *messages.VIEWS,
    *dead_letters.VIEWS,
    *jobs.VIEWS,
)
ACTIONS: Final[tuple[Action, ...]] = (*messages.ACTIONS, *dead_letters.ACTIONS)
POLLED_METRICS: Final[Question[Any] | None] = None
