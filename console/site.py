"""Which pages and actions the console has, and which metrics it asks for again and again.

Data only. The order is that of the navigation.

Tested by tests/console/test_site.py.
"""

from __future__ import annotations

from typing import Any, Final

from console.lanes import Question
from console.page import Action, View
from console.views import (
    damage,
    dead_letters,
    history,
    jobs,
    messages,
    overview,
    pop,
    replication,
    sends,
    timers,
    transactions,
    verdicts,
)

VIEWS: Final[tuple[View, ...]] = (
    *overview.VIEWS,
    *replication.VIEWS,
    *history.VIEWS,
    *verdicts.VIEWS,
    *damage.VIEWS,
    *sends.VIEWS,
    *timers.VIEWS,
    *pop.VIEWS,
    *transactions.VIEWS,
    *messages.VIEWS,
    *dead_letters.VIEWS,
    *jobs.VIEWS,
)
ACTIONS: Final[tuple[Action, ...]] = (
    *damage.ACTIONS,
    *timers.ACTIONS,
    *transactions.ACTIONS,
    *messages.ACTIONS,
    *dead_letters.ACTIONS,
)
POLLED_METRICS: Final[Question[Any] | None] = None
