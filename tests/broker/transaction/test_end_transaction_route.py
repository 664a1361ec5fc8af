"""EndTransactionRoute: commits of young halves on the loop, beside what the general path makes of
the same requests."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.append.diverted_messages import home_of
from broker.topic.system_topics import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from broker.transaction.end_transaction_route import (
    EndTransactionRoute,
)
from broker.transaction.half_message_states import HalfMessageStates
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import FastRoutes, RemotingServer
from remoting.request_code import RequestCode as Code
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, Route
from remoting.response_code import ResponseCode
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.errors import QueueTableFullError
from store.message_codec import decode_record
from store.record_again import record_again
from tests.broker.hot_path_world import send_request
from tests.broker.transaction_world import (
    COMMIT,
    GROUP,
    ROLLBACK,
    Half,
    TransactionWorld,
    end_request,
)
from tests.broker.twins import ROWS, KeptTwins, Twin, Twins
from tests.remoting.golden_frames import GOLDEN, GoldenFrame
from tests.support.frame_decoder import FrameDecoder

PROPERTIES = f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02UNIQ_KEY\x01U\x02WAIT\x01true"


class Side:
    """A broker whose server serves sends and 37, with the fast routes."""

    def __init__(self, root: Path, **kinds: Any) -> None:
        self.world = TransactionWorld(root, **kinds)
        self.hot = hot = self.world.hot
        self.young = hot.send_processor.singles.young_halves
        self.route = EndTransactionRoute(
            hot.writable_log,
            self.young,
            self.world.halves,
            hot.topics.find,
            hot.stats,
            lambda half: self.world.processor.append_op(half, None),
        )
        routes: dict[int, Route] = {
            Code.SEND_MESSAGE_V2: Route(hot.send_processor),
            Code.END_TRANSACTION: Route(self.world.processor),
        }
        routes_of = replace(hot.hot, end_transaction=self.route.process_fast)
        hot.server = RemotingServer(
            hot.loop,
            RequestDispatcher(routes),
            fast_routes=FastRoutes((*routes_of.guarded(), *routes_of.unguarded())),
        )
        self.client = hot.client("10.1.2.3", 4711)
        self.begin()

    def begin(self) -> None:
        """The general path serves the first of each kind."""
        for text in ("", PROPERTIES):
            self.client.send(send_request(properties=text))
            self.flush()
        self.client.send(end_request(Half(*self.last_half()), COMMIT))
        self.flush()
        assert [answer.code for answer in self.client.answers()] == [0, 0, 0]

    def flush(self) -> None:
        """What was put is published, on disk and in its queues."""
        self.hot.turn()
        self.hot.counters[FLUSHED_OFFSET] = self.hot.counters[MAX_PHY_OFFSET]
        self.hot.turn()
        self.hot.dispatch()

    def last_half(self) -> tuple[int, int]:
        last = self.world.messages("RMQ_SYS_TRANS_HALF_TOPIC")[-1]
        return last.phy_offset, last.queue_offset

    def ask(self, request: RemotingCommand | bytes) -> list[RemotingCommand]:
        """The answers that came in the turn of a request."""
        self.client.send(request)
        self.hot.turn()
        self.hot.dispatch()
        return self.client.answers()

    def forbid_general(self) -> None:
        def refuse(connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand | None:
            pytest.fail("the general path was taken")

        self.hot.send_processor.process_request = refuse  # type: ignore[method-assign]
        self.world.processor.process_request = refuse  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def kept() -> Iterator[KeptTwins]:
    with contextlib.closing(KeptTwins()) as kept:
        yield kept


@pytest.fixture
def twins(kept: KeptTwins) -> Twins:
    return kept.find(ROWS["plain"])


def prepare(twins: Twins, body: bytes = b"half", properties: str = PROPERTIES) -> Half:
    """A half on both."""
    start = twins.compared
    twins.feed(encode_command(send_request(body, properties=properties)))
    twins.each(Twin.flush)
    twins.answers()
    [message] = twins.hot.stored(start)
    twins.taken.clear()
    return Half(message.phy_offset, message.queue_offset)


def ask(twins: Twins, request: RemotingCommand | bytes) -> list[RemotingCommand]:
    """What both answer, store, count and keep is the same; the answers."""
    decoder = FrameDecoder()
    decoder.feed(twins.check(request))
    return list(iter(decoder.next_command, None))


class NoRoomForOps:
    """QueueRoom: the table is full, when the queue of ops would be a new one."""

    def check(self, topic: str, _queue_id: int) -> None:
        if topic == TRANS_OP_HALF_TOPIC:
            raise QueueTableFullError("full")

    take = check


def test_without_room_for_its_op_a_commit_stores_nothing(tmp_path: Path) -> None:
    """On the fast route, too: its half could be ended once more."""
    side = Side(tmp_path)
    side.ask(send_request(b"half", properties=PROPERTIES))
    side.flush()
    half = Half(*side.last_half())
    log = side.hot.log
    log.topic(TRANS_OP_HALF_TOPIC).next_offsets.clear()
    log._room = NoRoomForOps()  # type: ignore[assignment]
    before = log.position
    (answer,) = side.ask(end_request(half, COMMIT))
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "full")
    assert log.position == before
    side.hot.close()


@pytest.mark.interpreted
def test_the_commit_of_a_java_client_as_java_stored_it(tmp_path: Path) -> None:
    """The golden frame and the golden half that it commits; the general path's are in
    test_end_transaction_processor.py."""
    side = Side(tmp_path)
    records = json.loads((GOLDEN / "store-G" / "records-master.json").read_text())
    java = {one["phyOffset"]: one for one in records if one["kind"] == "message"}
    frame = GoldenFrame(GOLDEN / "wire-json" / "037-END_TRANSACTION" / "01.req.bin", "request")
    fields = frame.command().ext_fields
    place, queue_offset = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
    half, _ = decode_record(bytes.fromhex(java[place]["rawHex"]), 0)
    home = home_of(half.properties)
    assert home is not None
    side.hot.topic(home[0])
    kept = record_again(half, 0, half.properties, 0)
    side.world.halves = side.route._halves = HalfMessageStates()
    side.world.halves.known.set()
    side.young.add(queue_offset, place, *home, kept)
    side.forbid_general()
    assert side.ask(frame.frame) == [], "it is oneway"
    commit, op = side.hot.records()[-2:]
    for ours, number in ((commit, 19_999), (op, 20_300)):
        theirs, _ = decode_record(bytes.fromhex(java[number]["rawHex"]), 0)
        assert (
            replace(
                ours,
                phy_offset=theirs.phy_offset,
                queue_offset=theirs.queue_offset,
                store_timestamp=theirs.store_timestamp,
                born_timestamp=theirs.born_timestamp if ours is op else ours.born_timestamp,
            )
            == theirs
        )


def test_loose_numbers_and_frames_are_served_by_the_general_path(twins: Twins) -> None:
    half = prepare(twins)
    frame = encode_command(end_request(half, COMMIT))
    loose = frame.replace(b'"commitOrRollback":"8"', b'"commitOrRollback": 8 ')
    assert len(loose) == len(frame)
    assert [answer.code for answer in ask(twins, loose)] == [0]
    assert [answer.remark for answer in ask(twins, frame)] == [
        "the transaction has already ended; request ignored"
    ]
    assert twins.taken == [37, 37]


@pytest.mark.parametrize("flag", [0, 2])
def test_the_fast_route_is_really_taken(twins: Twins, flag: int) -> None:
    half = prepare(twins, b"one")
    young = len(twins.hot.young)
    assert young > 0
    before = twins.hot.count_answers(37, oneway=bool(flag))
    request = end_request(half, COMMIT)
    request.flag = flag
    start = twins.compared
    assert [answer.code for answer in ask(twins, request)] == ([] if flag else [0])
    assert twins.taken == []
    commit, op = twins.hot.stored(start)
    assert (commit.topic, commit.body) == ("T", b"one")
    assert (op.topic, op.body) == (TRANS_OP_HALF_TOPIC, b"%d" % half.queue_offset)
    assert twins.hot.halves.is_ended(half.queue_offset)
    assert len(twins.hot.young) == young - 1
    assert [twin.count_answers(37, oneway=bool(flag)) - before for twin in twins.pair] == [1, 1]


def test_nothing_is_kept_until_somebody_looks(tmp_path: Path) -> None:
    """With access control nobody does."""
    side = Side(tmp_path)
    assert len(side.young) == 0, "the first half came before the first end"
    side.client.call(send_request(properties=PROPERTIES))
    assert len(side.young) == 1


@pytest.mark.parametrize("flag", [0, 2])
def test_a_young_half_that_was_rolled_back_is_never_delivered(tmp_path: Path, flag: int) -> None:
    """The general path rolls it back; the fast route still has what its commit would store."""
    side = Side(tmp_path)
    kept, half = (
        side.client.call(send_request(body, properties=PROPERTIES)) for body in (b"1", b"2")
    )
    side.flush()
    before = side.world.delivered()
    rolled_back = Half(*side.last_half())
    assert rolled_back.queue_offset == int(half.ext_fields["queueOffset"])
    assert side.young.find(rolled_back.queue_offset) is not None
    assert [answer.code for answer in side.ask(end_request(rolled_back, ROLLBACK))] == [0]
    assert side.young.find(rolled_back.queue_offset) is not None, "else nothing is proved"
    request = end_request(rolled_back, COMMIT)
    request.flag = flag
    answers = side.ask(request)
    assert [answer.remark for answer in answers] == (
        [] if flag else ["the transaction has already ended; request ignored"]
    )
    assert side.world.delivered() == before
    assert side.world.ops().count(rolled_back.queue_offset) == 1
    other = Half(int(kept.ext_fields["msgId"][-16:], 16), int(kept.ext_fields["queueOffset"]))
    assert [answer.code for answer in side.ask(end_request(other, COMMIT))] == [0]
    assert side.world.delivered() == [*before, b"1"]


def test_a_young_half_whose_rollback_waits_is_not_committed(tmp_path: Path) -> None:
    """Its op waits for the log's next file."""
    side = Side(tmp_path, file_size=4096, files=1)
    start = side.hot.log.position
    side.client.call(send_request(b"half", properties=PROPERTIES))
    side.flush()
    before, half = side.world.delivered(), Half(*side.last_half())
    size = side.hot.log.position - start
    room_for_no_op = 4096 - side.hot.log.position - size - 100
    side.client.call(send_request(bytes(room_for_no_op), properties=PROPERTIES))
    side.flush()
    assert side.ask(end_request(half, ROLLBACK)) == []
    assert side.hot.append_queue.held
    assert [answer.code for answer in side.ask(end_request(half, COMMIT))] == [1]
    for number in (1, 2):
        side.hot.allocate(number)
    side.flush()
    assert [answer.code for answer in side.ask(end_request(half, COMMIT))] == [0, 0]
    assert side.world.delivered() == before
    assert side.world.ops().count(half.queue_offset) == 1


def test_what_the_check_has_stored_again_is_ended_with_its_copies() -> None:
    twins = Twins(ROWS["plain"])
    half = prepare(twins)
    start = twins.compared
    twins.each(lambda twin: twin.pass_time(60_000))
    twins.each(Twin.check_transactions)
    twins.answers()
    [copy] = [m for m in twins.hot.stored(start) if m.topic == TRANS_HALF_TOPIC]
    assert copy.queue_offset == half.queue_offset + 1
    start = twins.compared
    assert [answer.code for answer in ask(twins, end_request(half, COMMIT))] == [0]
    assert ops_of(twins, start) == [half.queue_offset, copy.queue_offset]
    twins.close()


def ops_of(twins: Twins, start: int) -> list[int]:
    """The halves that the ops of the log from `start` on have ended."""
    bodies = [m.body for m in twins.hot.stored(start) if m.topic == TRANS_OP_HALF_TOPIC]
    return [int(number) for body in bodies for number in body.split(b",") if number]


def test_a_topic_that_is_gone(twins: Twins) -> None:
    half = prepare(twins)
    twins.each(lambda twin: twin.delete("T"))
    assert [answer.code for answer in ask(twins, end_request(half, COMMIT))] == [17]
    twins.each(Twin.settle)
    assert [answer.code for answer in ask(twins, end_request(half, COMMIT))] == [0]


def test_a_topic_that_is_being_deleted(twins: Twins) -> None:
    """And was made again meanwhile, so that the table has it: the half stays."""
    half = prepare(twins)
    twins.each(lambda twin: twin.block("T"))
    (answer,) = ask(twins, end_request(half, COMMIT))
    assert (answer.code, answer.remark) == (17, "topic[T] is being deleted")
    twins.each(lambda twin: twin.unblock("T", deleted=True))
    start = twins.compared
    (answer,) = ask(twins, end_request(half, COMMIT))
    assert answer.code == 0
    assert [m.queue_offset for m in twins.hot.stored(start) if m.topic == "T"] == [0]


def test_a_disk_that_is_full(twins: Twins) -> None:
    half = prepare(twins)
    twins.each(lambda twin: twin.refuse_writes(refuse=True))
    refused = ask(twins, end_request(half, COMMIT))
    twins.each(lambda twin: twin.refuse_writes(refuse=False))
    assert [answer.code for answer in refused] == [14]
    assert [answer.code for answer in ask(twins, end_request(half, COMMIT))] == [0]


@pytest.mark.parametrize("wait", ["true", "false"])
def test_a_commit_waits_for_the_flush(kept: KeptTwins, wait: str) -> None:
    twins = kept.find(ROWS["flush"])
    half = prepare(twins, b"waits", PROPERTIES.replace("WAIT\x01true", f"WAIT\x01{wait}"))
    start = twins.compared
    answers = ask(twins, end_request(half, COMMIT))
    assert twins.taken == []
    assert len(answers) == (0 if wait == "true" else 1)
    commit, op = twins.hot.stored(start)
    assert (commit.topic, commit.body, op.topic) == ("T", b"waits", TRANS_OP_HALF_TOPIC)

    def flush_the_commit(twin: Twin) -> None:
        twin.page.counters[FLUSHED_OFFSET] = op.phy_offset
        twin.turn()

    twins.each(flush_the_commit)
    assert [answer.code for answer in answers + twins.answers()] == [0]
    twins.compare()


def test_the_next_file_is_waited_for_by_commits_and_by_ops(kept: KeptTwins) -> None:
    """Ends until the file is full, each time a little fuller: it ends before a commit, and between
    a commit and its op."""
    ends = set()
    twins = kept.find(replace(ROWS["small files"], file_size=4096))
    for filler in range(1, 400, 40):
        twins.each(Twin.room)
        twins.answers()
        start = twins.compared
        halves = [prepare(twins, b"x%d" % n + b"x" * 58) for n in range(3)]
        while (left := twins.hot.room_left()) >= 1000:
            filling = send_request(b"y" * min(400, max(1, left - 1000)))
            twins.feed(encode_command(filling))
        twins.feed(encode_command(send_request(b"z" * filler)))
        for half in halves:
            twins.feed(encode_command(end_request(half, COMMIT)))
        held = twins.hot.controller._messages.append_queue.held
        if held:
            ends.add(held[0].append.topic.name)
        twins.each(Twin.room)
        assert not held
        twins.answers()
        twins.compare()
        assert ops_of(twins, start) == [half.queue_offset for half in halves]
    assert ends == {"T", TRANS_OP_HALF_TOPIC}
