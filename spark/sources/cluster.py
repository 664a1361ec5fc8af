"""Cluster: what a source asks of name servers and brokers, with failover and retries.

A Python worker of the driver or of an executor owns a Cluster. A request goes to the master of
a broker name, else to a slave; while nobody of that name answers it is repeated with fresh routes
until `retry_ms` have passed, as in a failover. Knows nothing of Spark. Every failure is a
SourceError for the user, and none holds a secret.

Tested by tests/spark/sources/test_cluster.py.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeVar

from remoting.body.message_queue import MessageQueue
from remoting.body.route import BrokerData, TopicRouteData
from remoting.command_custom_header import CommandCustomHeader, decode_header
from remoting.errors import RemotingError, RequestError
from remoting.headers.consumer import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.headers.pull_message import PullMessageResponseHeader
from remoting.headers.query import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from remoting.signature import RequestSigner
from spark.sources.client_tls import client_tls
from spark.sources.errors import (
    DamagedMessageError,
    NoNameServerError,
    NoRightError,
    NoTopicError,
    OptionError,
    SourceError,
    UnavailableError,
)
from spark.sources.options import Connection
from spark.sources.patience import Patience
from store.closing import Closing
from tools.admin_client import MASTER_ID, PERM_WRITE, AdminClient, NameServers, unknown
from tools.errors import AdminError, BrokerAnswerError
from tools.message_puller import PULL_STATUS, TOOLS_GROUP, pull_header, readable_queues

log = logging.getLogger(__name__)

PULL_COUNT: Final = 1024
"""Messages that a pull asks for; brokers have limits of their own, 32 by default."""
MOST_QUEUES: Final = 100_000
"""Of a topic; a route that has more would fill the memory."""
_BUSY: Final = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
_REFUSALS: Final = ("AclException", "AuthenticationException", "AuthorizationException")
"""Brokers of 4.9 answer SYSTEM_ERROR with one of these in the remark, 5.x NO_PERMISSION."""

_Header = TypeVar("_Header", bound=CommandCustomHeader)
_Asked = TypeVar("_Asked")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and who gave it. is_master: False for a slave and for an acting master, which may
    know less than was promised to clients."""

    response: RemotingCommand
    address: str
    is_master: bool


@dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to a pull. `records`: stored messages, back to back; offset_delta: what their
    queue offsets have to be increased by (static topics)."""

    code: int
    next_offset: int
    min_offset: int
    max_offset: int
    offset_delta: int
    records: bytes
    address: str
    is_master: bool


class Cluster(Closing):
    """Owned by: one task or planner; threads that it has started may ask, too."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        credentials = connection.credentials
        self.admin = AdminClient(
            NameServers(connection.name_servers, timeout_ms=connection.timeout_ms),
            lambda: time.time_ns() // 1_000_000,
            None
            if credentials is None
            else RequestSigner(credentials.access_key, credentials.secret_key),
            None if connection.tls is None else client_tls(connection.tls),
        )
        self._routes: dict[str, TopicRouteData] = {}
        self._closed = threading.Event()
        self.pause: Callable[[float], object] = self._closed.wait
        """Waits so many seconds between two tries."""

    def __enter__(self) -> Self:
        self.admin.__enter__()
        return self

    def close(self) -> None:
        """Close all connections. Threads that wait for an answer get an error."""
        self._closed.set()
        self.admin.__exit__(None, None, None)

    # -- routes --------------------------------------------------------------------------------

    def route(self, topic: str, *, fresh: bool = False) -> TopicRouteData:
        """The topic's route; `fresh`: asked again, for as long as `patiently` does. NoTopicError,
        NoNameServerError."""
        if fresh or topic not in self._routes:
            self.patiently(f"topic {topic}", lambda: self._ask_route(topic))
        return self._routes[topic]

    def _ask_route(self, topic: str) -> None:
        found = self.admin.find_route(topic)
        if found is None:
            raise NoTopicError(self._unknown_topic(topic))
        _check_size(found, topic)
        self._routes[topic] = found

    def patiently(self, what: str, ask: Callable[[], _Asked]) -> _Asked:
        """What name servers answer; while none of them does, they are asked for `retry_ms`, as a
        broker is. SourceError: a NoNameServerError says of each why it did not answer."""
        retry_ms = self.connection.retry_ms
        patience = Patience(retry_ms, self.pause)
        while True:
            failure: SourceError
            try:
                with self._told(what):
                    return ask()
            except NoNameServerError as error:
                failure = NoNameServerError(f"{error}; asked for {retry_ms} ms (option retryMs)")
                if not patience.has_waited():
                    log.warning("%s; asked again for %s ms (option retryMs)", error, retry_ms)
            except NoTopicError as error:
                if not patience.has_waited():
                    raise
                failure = error  # a name server that has just started waits for its brokers
            if self._closed.is_set() or not patience.wait():
                raise failure

    def _unknown_topic(self, topic: str) -> str:
        try:
            names = self.admin.topic_names()
        except AdminError:  # the account may not list them
            names = []
        servers = ", ".join(self.connection.name_servers)
        return f"{unknown('topic', topic, names)} (name servers: {servers})"

    def queues(self, topic: str, *, fresh: bool = False) -> list[MessageQueue]:
        """The readable queues of a topic, by broker name and id; of a static topic its logic
        queues. NoTopicError when there is none."""
        found = readable_queues(self.route(topic, fresh=fresh), topic)
        if not found:
            raise NoTopicError(f"topic {topic} has no queue that may be read")
        return found

    def members(self, topic: str, broker_name: str) -> list[tuple[str, bool]]:
        """The addresses of a broker name in a topic's route, each with whether it is a true master;
        the master first. Nothing for a name that the route lacks now."""
        route = self.route(topic)
        writable = any(
            data.broker_name == broker_name and data.perm & PERM_WRITE for data in route.queue_datas
        )
        return [
            member
            for data in route.broker_datas
            if data.broker_name == broker_name
            for member in _members_of(data, writable)
        ]

    # -- offsets -------------------------------------------------------------------------------

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset of a queue."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self.ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return self._header(GetMinOffsetResponseHeader, answer, queue).offset

    def max_offset(self, queue: MessageQueue) -> tuple[int, bool]:
        """The offset behind the last message of a queue, and whether a true master said so: a slave
        may lag behind."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        answer = self.ask(queue, RequestCode.GET_MAX_OFFSET, header)
        found = self._header(GetMaxOffsetResponseHeader, answer, queue)
        return found.offset, answer.is_master

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The broker's answer: the first offset stored at that time or later; where there is none,
        4.9 says the last offset and 5.x the one behind it."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        answer = self.ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return self._header(SearchOffsetResponseHeader, answer, queue).offset

    def group_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset that a group will consume; None: the broker knows no progress of it."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = self.ask(queue, RequestCode.QUERY_CONSUMER_OFFSET, header, accept=accept)
        if answer.response.code != ResponseCode.SUCCESS:
            return None
        return self._header(QueryConsumerOffsetResponseHeader, answer, queue).offset

    def commit_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Record a group's progress at the broker."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        self.ask(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    # -- messages ------------------------------------------------------------------------------

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = PULL_COUNT,
        *,
        group: str = TOOLS_GROUP,
        expression: str = "*",
    ) -> Pulled:
        """One pull from `offset` on; the broker does not wait for messages. expression: tags, which
        the broker compares by their hash codes only."""
        header = pull_header(group, queue, offset, min(count, PULL_COUNT), expression)
        answer = self.ask(queue, RequestCode.PULL_MESSAGE, header, accept=PULL_STATUS)
        response = answer.response
        found = self._header(PullMessageResponseHeader, answer, queue)
        return Pulled(
            response.code,
            found.next_begin_offset,
            found.min_offset,
            found.max_offset,
            found.offset_delta or 0,
            response.body,
            answer.address,
            answer.is_master,
        )

    # -- asking --------------------------------------------------------------------------------

    def ask(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: CommandCustomHeader | None,
        *,
        accept: Collection[int] = (ResponseCode.SUCCESS,),
        body: bytes = b"",
    ) -> Answer:
        """The answer of the queue's broker name: master, else slave. UnavailableError when nobody
        of it answered for `retry_ms`."""
        patience = Patience(self.connection.retry_ms, self.pause)
        while True:
            found, failures = self._ask_members(queue, code, header, accept, body)
            if found is not None:
                return found
            if self._closed.is_set() or not patience.wait():
                raise UnavailableError(
                    f"broker {queue.broker_name} of topic {queue.topic}: no answer for "
                    f"{self.connection.retry_ms} ms (option retryMs): {'; '.join(failures)}"
                )
            self.refresh(queue.topic)

    def _ask_members(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: CommandCustomHeader | None,
        accept: Collection[int],
        body: bytes,
    ) -> tuple[Answer | None, list[str]]:
        failures = []
        try:
            members = self.members(queue.topic, queue.broker_name)
        except (NoTopicError, NoNameServerError) as error:  # a task may start in a failover
            return None, [str(error)]
        for address, is_master in members:
            try:
                with self._told(f"topic {queue.topic}, queue {queue.queue_id}"):
                    response = self.admin.call(
                        address,
                        code,
                        header,
                        body,
                        accept=(*accept, *_BUSY),
                        timeout_ms=self.connection.timeout_ms,
                    )
            except RemotingError as error:
                failures.append(str(error))
                continue
            if response.code in _BUSY and response.code not in accept:
                failures.append(str(BrokerAnswerError(address, response.code, response.remark)))
                continue
            return Answer(response, address, is_master), []
        return None, failures or ["the route has no broker of this name"]

    def refresh(self, topic: str) -> None:
        """Ask for the route again. One that cannot be had now, in the middle of a failover, stays
        as it was."""
        try:
            with self._told(f"topic {topic}"):
                self._ask_route(topic)
        except (NoTopicError, NoNameServerError):
            return

    def _header(self, kind: type[_Header], answer: Answer, queue: MessageQueue) -> _Header:
        with self._told(f"topic {queue.topic}, queue {queue.queue_id}, {answer.address}"):
            return decode_header(kind, answer.response.ext_fields)

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Refusals and unreadable answers as SourceErrors."""
        try:
            yield
        except BrokerAnswerError as error:
            raise refusal(error, what, self.connection) from None
        except RequestError as error:
            raise DamagedMessageError(f"{what}: an answer cannot be read: {error}") from None
        except AdminError as error:
            raise NoNameServerError(f"{what}: {error}") from None


def _check_size(route: TopicRouteData, topic: str) -> None:
    counts = [max(each.read_queue_nums, each.write_queue_nums, 0) for each in route.queue_datas]
    if sum(counts) > MOST_QUEUES:
        raise DamagedMessageError(
            f"topic {topic}: its route has {sum(counts)} queues, {MOST_QUEUES} are believed"
        )


def _members_of(data: BrokerData, writable: bool) -> list[tuple[str, bool]]:
    certain = writable or not data.enable_acting_master
    return [
        (address, certain and broker_id == MASTER_ID)
        for broker_id, address in sorted(data.broker_addrs.items())
    ]


def refusal(error: BrokerAnswerError, what: str, connection: Connection) -> SourceError:
    """What a broker's answer means for the user."""
    credentials = connection.credentials
    if error.code == ResponseCode.NO_PERMISSION or any(word in error.remark for word in _REFUSALS):
        who = "unsigned requests (give aclFile)"
        if credentials is not None:
            who = f"the account {credentials.access_key}"
        return NoRightError(f"{what}: {error}; the cluster refuses {who}")
    if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
        return OptionError(f"{what}: {error}; name an existing group with the option group")
    if error.code == ResponseCode.TOPIC_NOT_EXIST:
        return NoTopicError(f"{what}: {error}")
    return SourceError(f"{what}: {error}")
