"""Which pages and actions the console has, and which metrics it asks for again and again.

Data only. The order is that of the navigation.

Tested by tests/console/test_server.py.
"""

from __future__ import annotations

from typing import Any, Final

from console.lanes import Question
from console.page import Action, View
from console.questions import METRICS
from console.views import (
    accounts,
    changes,
    clients,
    connections,
    damage,
    dead_letters,
    group_changes,
    groups,
    history,
    jobs,
    messages,
    overview,
    pop,
    replication,
    search,
    sends,
    settings,
    timers,
    topic_changes,
    topics,
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
    *topics.VIEWS,
    *groups.VIEWS,
    *clients.VIEWS,
    *messages.VIEWS,
    *dead_letters.VIEWS,
    *settings.VIEWS,
    *connections.VIEWS,
    *accounts.VIEWS,
    *changes.VIEWS,
    *search.VIEWS,
    *jobs.VIEWS,
)
ACTIONS: Final[tuple[Action, ...]] = (
    *topic_changes.ACTIONS,
    *group_changes.ACTIONS,
    *messages.ACTIONS,
    *dead_letters.ACTIONS,
    *settings.ACTIONS,
    *timers.ACTIONS,
    *transactions.ACTIONS,
    *damage.ACTIONS,
)
POLLED_METRICS: Final[Question[Any] | None] = METRICS
