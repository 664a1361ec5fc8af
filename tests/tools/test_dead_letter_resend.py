"""Resending: what counts, what goes along, who is asked, what the audit says, where a run ends."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remoting.errors import RemotingTimeoutError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from tests.tools.fake_cluster import FakeCluster
from tests.tools.stored_queues import Stored, StoredQueues
from tools.admin_client import AdminClient, NameServers
from tools.dead_letter_resend import (
    MOST_FAILURES,
    ResendCount,
    ResendOrder,
    ResendStep,
    resend,
)
from tools.dead_letters import Read, Unread, scan
from tools.errors import AdminError
from tools.message_decoder import decode_properties
from tools.resend_audit import SENDING, UNKNOWN, AuditLine, ResendAudit

DLQ = "%DLQ%g"
ORDER = ResendOrder(group="g", who="alice", origin="10.0.0.9")


class Bench:
    """A group with dead letters of topic `orders`, which it consumes."""

    def __init__(self, admin: AdminClient, stored: StoredQueues, path: Path) -> None:
        self.admin = admin
        self.stored = stored
        self.path = path
        self.waits: list[float] = []
        self.now = 100.0
        stored.topic("orders")
        stored.consumers["orders"] = ["g"]

    def letters(self, *letters: Stored) -> None:
        """Fill the dead-letter topic."""
        self.stored.topic(DLQ, [letters])

    def steps(
        self,
        order: ResendOrder = ORDER,
        letters: Iterator[Read] | None = None,
        stops_after: int = 1 << 30,
    ) -> Iterator[ResendStep]:
        """Resend all, or these; the waits of a rate pass at once."""

        def wait(seconds: float) -> bool:
            self.waits.append(seconds)
            self.now += seconds
            return len(self.waits) > stops_after

        found = scan(self.admin, order.group) if letters is None else letters
        with ResendAudit(self.path) as audit:
            yield from resend(self.admin, found, order, audit, wait=wait, clock=lambda: self.now)

    def lines(self) -> list[dict[str, Any]]:
        """The audit file's results."""
        return [line for line in self.all_lines() if line["result"] != SENDING]

    def all_lines(self) -> list[dict[str, Any]]:
        """The audit file."""
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def sent(self) -> list[RemotingCommand]:
        """The sends."""
        return self.stored.sends()


@pytest.fixture
def bench(cluster: FakeCluster, tmp_path: Path) -> Iterator[Bench]:
    with AdminClient(NameServers.parse(cluster.address), lambda: 5_000_000) as admin:
        yield Bench(admin, StoredQueues(cluster), tmp_path / "audit" / "dlq.jsonl")


def line_of(result: str) -> AuditLine:
    return AuditLine(
        time_ms=1,
        who="a",
        origin="b",
        group="g",
        letter_id="AB",
        stored_ms=1,
        msg_id="m",
        topic="t",
        result=result,
    )


def one(**properties: str) -> Stored:
    return Stored({"RETRY_TOPIC": "orders", **properties})


class TestWhatCounts:
    def test_send_ok(self, bench: Bench) -> None:
        bench.letters(one(UNIQ_KEY="AB"), one())
        first, second = bench.steps()
        assert first == ResendStep(
            what=bench.stored.letter_id(DLQ, 0, 0),
            msg_id="AB",
            topic="orders",
            result="SEND_OK",
            new_msg_id="NEW1",
        )
        assert first.is_resent
        assert second.msg_id == bench.stored.letter_id(DLQ, 0, 1)

    @pytest.mark.parametrize(
        ("code", "result"),
        [(10, "FLUSH_DISK_TIMEOUT"), (12, "FLUSH_SLAVE_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE")],
    )
    def test_stored_is_not_enough(self, bench: Bench, code: int, result: str) -> None:
        bench.letters(one())
        bench.stored.answers["orders"] = (code, None)
        (step,) = bench.steps()
        assert (step.result, step.is_resent, step.new_msg_id) == (result, False, "NEW1")
        assert "makes a second copy" in (step.reason or "")

    @pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 205])
    def test_refused(self, bench: Bench, code: int) -> None:
        bench.letters(one())
        bench.stored.answers["orders"] = (code, "because")
        (step,) = bench.steps()
        assert (step.result, step.is_resent) == ("REFUSED", False)
        assert (step.reason or "").endswith(": because")

    def test_no_answer(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.letters(one())
        real = bench.admin.call

        def call(address: str, code: RequestCode, *args: Any, **options: Any) -> RemotingCommand:
            if code == RequestCode.SEND_MESSAGE_V2:
                raise RemotingTimeoutError(address, "no answer in 5000 ms")
            return real(address, code, *args, **options)

        monkeypatch.setattr(bench.admin, "call", call)
        (step,) = bench.steps()
        assert (step.result, step.is_resent) == ("UNKNOWN", False)
        assert (step.reason or "").startswith("it may have been stored: ")

    def test_what_could_not_be_read(self, bench: Bench) -> None:
        unread: list[Read] = [Unread("AB", "no such letter")]
        (step,) = bench.steps(letters=iter(unread))
        assert (step.what, step.result, step.reason) == ("AB", "NOT_FOUND", "no such letter")
        assert not step.is_resent

    def test_are_counted(self, bench: Bench) -> None:
        bench.letters(one(), Stored(), one())
        list(bench.steps(letters=iter([next(scan(bench.admin, "g"))])))
        count = ResendCount()
        for step in bench.steps():
            count.add(step)
        assert str(count) == "1 resent, 1 resent before, 1 not resent"
        assert count.total == 3


class TestTarget:
    def test_no_property_names_it(self, bench: Bench) -> None:
        bench.letters(Stored())
        (step,) = bench.steps()
        assert (step.result, step.topic) == ("NO_TARGET", None)
        assert bench.sent() == []

    def test_it_is_gone(self, bench: Bench) -> None:
        """It must not be created again: nobody would consume it."""
        bench.stored.topic("TBW102")
        bench.letters(Stored({"RETRY_TOPIC": "gone"}))
        (step,) = bench.steps()
        assert (step.result, step.reason) == ("NO_TARGET", "topic gone does not exist")
        (step,) = bench.steps(ResendOrder(group="g", who="a", origin="b", to_topic="gone"))
        assert step.result == "NO_TARGET"
        assert bench.sent() == []

    def test_a_letter_names_any_topic(self, bench: Bench) -> None:
        """Who may write to the group's dead-letter topic could have this account write to all."""
        bench.stored.topic("payments")
        bench.stored.consumers["payments"] = ["others"]
        bench.letters(Stored({"RETRY_TOPIC": "payments"}))
        (step,) = bench.steps()
        assert step.result == "NO_TARGET"
        assert step.reason == "group g does not consume topic payments: name it to send there"
        assert bench.sent() == []

    def test_the_operator_names_any_topic(self, bench: Bench) -> None:
        bench.stored.topic("parking")
        bench.letters(Stored(), one())
        order = ResendOrder(group="g", who="a", origin="b", to_topic="parking")
        assert [step.topic for step in bench.steps(order)] == ["parking"] * 2
        assert [request.ext_fields["b"] for request in bench.sent()] == ["parking"] * 2

    @pytest.mark.parametrize("topic", ["%DLQ%g", "%DLQ%x", "%RETRY%x", "%RETRY%g_orders"])
    def test_what_no_message_is_sent_to(self, bench: Bench, topic: str) -> None:
        bench.letters(one())
        if topic != DLQ:
            bench.stored.topic(topic)
        (step,) = bench.steps(ResendOrder(group="g", who="a", origin="b", to_topic=topic))
        assert step.result == "NO_TARGET"
        assert bench.sent() == []

    def test_for_this_group_only(self, bench: Bench) -> None:
        """Its consumers take it for a retry of a message of `orders`; the group's own limit of
        retries must not send it back where it comes from."""
        bench.stored.topic("%RETRY%g")
        bench.letters(one(UNIQ_KEY="AB"))
        order = ResendOrder(group="g", who="a", origin="b", to_topic="%RETRY%g")
        (step,) = bench.steps(order)
        assert step.is_resent
        fields = bench.sent()[0].ext_fields
        assert (fields["b"], fields["j"], fields["l"]) == ("%RETRY%g", "0", "16")
        assert decode_properties(fields["i"]) == {"UNIQ_KEY": "AB", "RETRY_TOPIC": "orders"}

    def test_an_acl_that_says_no(self, bench: Bench, cluster: FakeCluster) -> None:
        bench.letters(one())
        cluster.always(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, 16, "not for you")
        (step,) = bench.steps()
        assert step.result == "NO_TARGET"
        assert (step.reason or "").endswith("not for you")

    def test_each_topic_is_asked_about_once(self, bench: Bench, cluster: FakeCluster) -> None:
        bench.letters(one(), one(), one())
        assert all(step.is_resent for step in bench.steps())
        assert len(cluster.asked(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)) == 1


class TestCopy:
    def test_has_what_its_sender_wrote(self, bench: Bench) -> None:
        bench.letters(one(KEYS="k", TAGS="a", UNIQ_KEY="AB", own="1", DELAY="3", TRAN_MSG="true"))
        list(bench.steps())
        request = bench.sent()[0]
        assert decode_properties(request.ext_fields["i"]) == {
            "KEYS": "k",
            "TAGS": "a",
            "UNIQ_KEY": "AB",
            "own": "1",
        }
        assert request.body == b"hello"
        # The record's flag; no transaction, no host bits; consumed anew; no limit of its own.
        fields = request.ext_fields
        assert (fields["h"], fields["f"], fields["j"]) == ("4", "0", "0")
        assert "l" not in fields

    def test_without_a_unique_key_it_gets_one(self, bench: Bench) -> None:
        bench.letters(one())
        list(bench.steps())
        key = decode_properties(bench.sent()[0].ext_fields["i"])["UNIQ_KEY"]
        assert len(key) == 32

    @pytest.mark.parametrize("sys_flag", [0x1, 0x101, 0x201, 0x301])
    def test_a_compressed_body_goes_as_it_is(self, bench: Bench, sys_flag: int) -> None:
        """What cannot be inflated here can be at the consumer."""
        body = zlib.compress(b"x" * 9999)
        bench.letters(Stored({"RETRY_TOPIC": "orders"}, body=body, sys_flag=sys_flag | 0x8))
        list(bench.steps())
        request = bench.sent()[0]
        assert (request.body, int(request.ext_fields["f"])) == (body, sys_flag)

    def test_a_body_that_was_cut_is_never_sent(self, bench: Bench) -> None:
        bench.letters(one())
        with pytest.raises(ValueError, match="only the beginning"):
            list(bench.steps(letters=scan(bench.admin, "g", max_body=3)))
        assert bench.sent() == []

    def test_the_largest_body(self, bench: Bench) -> None:
        """What fits into a frame, which has 16 MiB; what does not, no client could have pulled."""
        body = bytes((16 << 20) - 1000)
        bench.letters(Stored({"RETRY_TOPIC": "orders"}, body=body))
        (step,) = bench.steps()
        assert step.is_resent
        assert bench.sent()[0].body == body
        bench.letters(Stored({"RETRY_TOPIC": "orders"}, body=bytes(16 << 20)))
        (step,) = bench.steps()
        assert (step.what, step.result) == ("broker-g queue 0", "NOT_FOUND")


class TestTwice:
    def test_is_sent_once(self, bench: Bench) -> None:
        bench.letters(one(), one())
        list(bench.steps())
        again = list(bench.steps())
        assert [step.result for step in again] == ["ALREADY_RESENT"] * 2
        assert again[0].reason == "by alice from 10.0.0.9"
        assert again[0].new_msg_id == "NEW1"
        assert len(bench.sent()) == 2

    def test_unless_that_is_asked_for(self, bench: Bench) -> None:
        bench.letters(one())
        list(bench.steps())
        list(bench.steps(ResendOrder(group="g", who="a", origin="b", again=True)))
        assert len(bench.sent()) == 2

    def test_what_did_not_count_is_sent_again(self, bench: Bench) -> None:
        bench.letters(one())
        bench.stored.answers["orders"] = (12, None)
        list(bench.steps())
        del bench.stored.answers["orders"]
        assert [step.result for step in bench.steps()] == ["SEND_OK"]

    def test_another_groups_line_means_nothing(self, bench: Bench) -> None:
        bench.letters(one())
        list(bench.steps())
        text = bench.path.read_text().replace('"group":"g"', '"group":"h"')
        bench.path.write_text(text)
        assert [step.result for step in bench.steps()] == ["SEND_OK"]

    def test_at_the_same_time(self, bench: Bench) -> None:
        """The second run would not see what the first one does meanwhile."""
        bench.letters(one(), one())
        first = bench.steps()
        next(first)
        with pytest.raises(AdminError, match="dead letters of group g are being resent already"):
            list(bench.steps())
        bench.stored.topic("%DLQ%h", [[]])
        assert list(bench.steps(ResendOrder(group="h", who="a", origin="b"))) == []
        list(first)
        assert len(bench.sent()) == 2
        assert [step.result for step in bench.steps()] == ["ALREADY_RESENT"] * 2

    def test_a_new_store_has_the_same_ids(self, bench: Bench) -> None:
        bench.letters(one())
        list(bench.steps())
        bench.path.write_text(bench.path.read_text().replace('"storedMs":10000', '"storedMs":9'))
        assert [step.result for step in bench.steps()] == ["SEND_OK"]


class TestAudit:
    def test_has_a_line_for_each(self, bench: Bench) -> None:
        bench.letters(one(UNIQ_KEY="AB"), Stored({"UNIQ_KEY": "CD"}))
        list(bench.steps())
        resent, other = bench.lines()
        assert resent == {
            "timeMs": 5_000_000,
            "who": "alice",
            "origin": "10.0.0.9",
            "group": "g",
            "letterId": bench.stored.letter_id(DLQ, 0, 0),
            "storedMs": 10_000,
            "msgId": "AB",
            "topic": "orders",
            "result": "SEND_OK",
            "reason": None,
            "newMsgId": "NEW1",
        }
        assert (other["msgId"], other["result"]) == ("CD", "NO_TARGET")

    def test_the_line_is_there_before_the_next_message(self, bench: Bench) -> None:
        bench.letters(one(), one())
        steps = bench.steps()
        next(steps)
        assert len(bench.lines()) == 1
        assert len(bench.sent()) == 1

    def test_nothing_is_sent_without_it(self, bench: Bench) -> None:
        bench.letters(one())
        bench.path.parent.parent.joinpath("audit").write_text("a file, no directory")
        with pytest.raises(AdminError, match=r"audit file .*dlq\.jsonl: "):
            list(bench.steps())
        assert bench.sent() == []

    def test_a_full_disk_ends_the_run(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        bench.letters(one(), one())
        monkeypatch.setattr("os.write", lambda _fd, data: len(data) - 1)
        with pytest.raises(AdminError, match="the line was cut"):
            list(bench.steps())
        assert bench.sent() == []

    def test_a_send_is_announced_before_it_and_once(self, bench: Bench) -> None:
        bench.letters(one(UNIQ_KEY="AB"), Stored({"UNIQ_KEY": "CD"}))
        found: list[list[str]] = []
        bench.stored.on_send = lambda: found.append([line["result"] for line in bench.all_lines()])
        list(bench.steps())
        assert found == [[SENDING]]
        assert [line["result"] for line in bench.all_lines()] == [SENDING, "SEND_OK", "NO_TARGET"]

    def test_a_run_that_was_killed_leaves_a_letter_of_which_nobody_knows(
        self, bench: Bench
    ) -> None:
        """It may lie in its topic: the next run says so, and then it is known."""
        bench.letters(one(UNIQ_KEY="AB"), one(UNIQ_KEY="CD"))
        next(bench.steps())
        announced, *_ = bench.path.read_bytes().splitlines(keepends=True)
        bench.path.write_bytes(announced)
        audit = ResendAudit(bench.path)
        assert audit.told("g").resent == {}
        assert [line.msg_id for line in audit.told("g").unsure.values()] == ["AB"]
        assert audit.told("h").unsure == {}
        first, second = bench.steps()
        assert (first.result, first.is_resent, second.reason) == ("SEND_OK", True, None)
        assert "this may be the second copy" in (first.reason or "")
        assert audit.told("g").unsure == {}
        assert len(audit.told("g").resent) == 2

    @pytest.mark.parametrize(
        ("results", "is_unsure"),
        [
            ((SENDING,), True),
            ((SENDING, UNKNOWN), True),
            ((SENDING, "REFUSED"), False),
            ((SENDING, "SEND_OK"), False),
            ((SENDING, "SEND_OK", SENDING), False),
            ((SENDING, "REFUSED", SENDING), True),
        ],
    )
    def test_of_whom_nobody_knows(
        self, tmp_path: Path, results: tuple[str, ...], is_unsure: bool
    ) -> None:
        with ResendAudit(tmp_path / "a") as audit:
            for result in results:
                audit.add(line_of(result))
            assert bool(audit.told("g").unsure) == is_unsure

    def test_damaged_lines_are_left_out(self, bench: Bench) -> None:
        bench.letters(one())
        list(bench.steps())
        line = bench.path.read_bytes()
        bench.path.write_bytes(b'{"x":1}\n\xff\n' + line[:40] + b"\n\n" + line)
        assert len(ResendAudit(bench.path).told("g").resent) == 1

    def test_is_not_made_by_reading(self, bench: Bench) -> None:
        assert ResendAudit(bench.path).told("g").resent == {}
        assert not bench.path.parent.exists()

    def test_an_interruption_leaves_a_line(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.letters(one())

        def interrupted(*_args: Any, **_options: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("tools.message_sender.MessageSender.send_message", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(bench.steps())
        assert [line["result"] for line in bench.lines()] == ["UNKNOWN"]

    def test_hostile_texts_stay_on_their_line(self, tmp_path: Path) -> None:
        line = AuditLine(
            time_ms=1,
            who='a"\n{}',
            origin="\x1b[2J",
            group="g" * 300,
            letter_id="AB",
            stored_ms=1,
            msg_id="<b>\n",
            topic="\u2028",
            result="SEND_OK",
        )
        with ResendAudit(tmp_path / "a") as audit:
            audit.add(line)
            audit.add(line)
        assert len((tmp_path / "a").read_bytes().splitlines()) == 2
        assert ResendAudit(tmp_path / "a").told("g" * 300).resent == {("AB", 1): line}


class TestRun:
    def test_stops_between_two_messages(self, bench: Bench) -> None:
        bench.letters(one(), one(), one())
        steps = bench.steps()
        next(steps)
        steps.close()  # type: ignore[attr-defined]
        assert (len(bench.sent()), len(bench.lines())) == (1, 1)

    def test_keeps_to_a_rate(self, bench: Bench) -> None:
        bench.letters(*[one()] * 4)
        for _ in bench.steps(ResendOrder(group="g", who="a", origin="b", rate=4)):
            bench.now += 0.05
        assert bench.waits == pytest.approx([0.2] * 3)

    def test_what_took_longer_is_not_made_up_for(self, bench: Bench) -> None:
        bench.letters(*[one()] * 3)
        for step in bench.steps(ResendOrder(group="g", who="a", origin="b", rate=4)):
            bench.now += 9 if step.new_msg_id == "NEW1" else 0
        assert bench.waits == pytest.approx([0.25])

    def test_a_wait_can_be_ended(self, bench: Bench) -> None:
        bench.letters(*[one()] * 4)
        order = ResendOrder(group="g", who="a", origin="b", rate=4)
        assert len(list(bench.steps(order, stops_after=1))) == 2
        assert len(bench.sent()) == 2

    def test_what_is_not_sent_does_not_wait(self, bench: Bench) -> None:
        bench.letters(*[Stored()] * 4)
        list(bench.steps(ResendOrder(group="g", who="a", origin="b", rate=4)))
        assert bench.waits == []

    @pytest.mark.parametrize("rate", [0, -1, float("nan")])
    def test_no_rate(self, rate: float) -> None:
        with pytest.raises(AdminError, match="resends nothing"):
            ResendOrder(group="g", who="a", origin="b", rate=rate)

    @pytest.mark.parametrize("code", [1, 11])
    def test_ends_after_failures_in_a_row(self, bench: Bench, code: int) -> None:
        """Also when they are stored: the next run would store them all a second time."""
        bench.letters(*[one()] * 30)
        bench.stored.answers["orders"] = (code, "no")
        steps = bench.steps()
        with pytest.raises(AdminError, match="stopped after 10 failures in a row"):
            list(steps)
        assert len(bench.sent()) == len(bench.lines()) == MOST_FAILURES

    def test_a_success_between_them_counts(self, bench: Bench, cluster: FakeCluster) -> None:
        bench.letters(*[one()] * 30)
        answer = cluster.answers[RequestCode.SEND_MESSAGE_V2]

        def every_fifth(request: RemotingCommand) -> RemotingCommand:
            return answer(request) if len(bench.sent()) % 5 == 0 else request.response(1, "no")

        cluster.answers[RequestCode.SEND_MESSAGE_V2] = every_fifth
        assert len(list(bench.steps())) == 30

    def test_topics_that_are_gone_do_not_end_it(self, bench: Bench) -> None:
        bench.letters(*[Stored({"RETRY_TOPIC": "gone"})] * 15, one())
        assert [step.result for step in bench.steps()][-1] == "SEND_OK"
