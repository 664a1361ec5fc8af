"""Static topics put together: what stands before the processors of their request codes.

Built once, on start. The entry runs on the thread of the processor behind it; what may wait for
another broker, in the pool StaticTopicThread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.out.broker_rpc import BrokerRpc
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.pull.static_topic_entry import StaticPullEntry, StaticTopicEntry
from broker.pull.static_topic_processor import Mappings, StaticTopicProcessor
from remoting.request_dispatcher import AnswerObserver, RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import RequestProcessor, Route

STATIC_TOPIC_POOL: Final = "StaticTopicThread"
_THREADS: Final = 4
"""Each waits for another broker."""
_CAPACITY: Final = 10_000

OnLoop = Callable[[Callable[[], None]], None]


def static_topic_pool() -> RequestExecutor:
    """The pool in which other brokers are waited for."""
    return RequestExecutor(STATIC_TOPIC_POOL, _THREADS, _CAPACITY)


class _CountsOnLoop:
    """An AnswerObserver that counts on the loop, which counts answers to pulls without a lock."""

    def __init__(self, observer: AnswerObserver, on_loop: OnLoop) -> None:
        self._observer = observer
        self._on_loop = on_loop

    def answered(
        self, request_code: int, code: int, elapsed_ms: float, *, oneway: bool = False
    ) -> None:
        """See AnswerObserver."""
        self._on_loop(
            lambda: self._observer.answered(request_code, code, elapsed_ms, oneway=oneway)
        )


def before_processors(
    ordinary: Mapping[int, RequestProcessor],
    pull: PullMessageProcessor,
    mappings: Mappings,
    brokers: BrokerRpc,
    pool: RequestExecutor,
    observer: AnswerObserver,
    on_loop: OnLoop,
) -> dict[int, RequestProcessor]:
    """`ordinary` with the entries of static topics."""
    static = StaticTopicProcessor(mappings, ordinary, brokers)
    in_pool = Route(static, STATIC_TOPIC_POOL)
    hand_over = RequestDispatcher(
        dict.fromkeys(static.table, in_pool),
        {STATIC_TOPIC_POOL: pool},
        _CountsOnLoop(observer, on_loop),
    ).dispatch
    entries: dict[int, RequestProcessor] = {}
    for code in static.table:
        if ordinary[code] is pull:
            entries[code] = StaticPullEntry(mappings, pull, hand_over)
        else:
            entries[code] = StaticTopicEntry(mappings, ordinary[code], static, hand_over)
    return {**ordinary, **entries}
