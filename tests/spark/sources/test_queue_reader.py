"""Ranges of queues: each message once; what is gone is an error or a warning, and never silent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from remoting.body.message_queue import MessageQueue
from remoting.body.topic_config import TopicConfigAndQueueMapping
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from spark.sources.cluster import Cluster
from spark.sources.errors import DamagedMessageError, DataLossError, UnavailableError
from spark.sources.losses import LossRule
from spark.sources.queue_reader import RangeReader, ReadRules
from spark.sources.ranges import Range
from spark.sources.rows import SCHEMA, BatchMaker, StoredMessage
from tests.spark.sources.fake_queues import FakeQueues
from tests.tools.stored_queues import Stored

FIRM = ReadRules(LossRule(fails=True))
LAX = ReadRules(LossRule(fails=False))


def read(
    client: Cluster,
    begin: int,
    end: int,
    rules: ReadRules = FIRM,
    wanted: Callable[[StoredMessage], bool] | None = None,
) -> list[int]:
    part = Range("T", "broker-g", 0, begin, end)
    return [each.queue_offset for each in RangeReader(client, part, rules, wanted).messages()]


def change_pulls(stored: FakeQueues, change: Callable[[RemotingCommand], object]) -> None:
    """Each answer to a pull is changed before it goes out."""
    pull = stored.cluster.answers[RequestCode.PULL_MESSAGE]

    def answer(request: RemotingCommand) -> RemotingCommand:
        response = pull(request)
        change(response)
        return response

    stored.cluster.answers[RequestCode.PULL_MESSAGE] = answer


def test_each_message_once(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 20)
    assert read(client, 0, 20) == list(range(20))
    assert read(client, 3, 11) == list(range(3, 11))
    assert read(client, 7, 7) == []


def test_a_broker_that_sends_more_than_was_asked_for(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 20)
    change_pulls(stored, lambda answer: None)
    pull = stored.cluster.answers[RequestCode.PULL_MESSAGE]

    def early(request: RemotingCommand) -> RemotingCommand:
        """From two before the offset on, as in the middle of a batch."""
        offset = int(request.ext_fields["queueOffset"])
        request.ext_fields |= {"queueOffset": str(max(offset - 2, 0)), "maxMsgNums": "3"}
        return pull(request)

    stored.cluster.answers[RequestCode.PULL_MESSAGE] = early
    assert read(client, 5, 9) == [5, 6, 7, 8]


class TestRetention:
    def test_before_the_first_pull(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 10)
        stored.first["T", 0] = 4
        with pytest.raises(DataLossError, match="offsets 0 to 3 are beyond retention") as caught:
            read(client, 0, 10)
        assert "failOnDataLoss" in str(caught.value)

    def test_as_a_warning(
        self, client: Cluster, stored: FakeQueues, caplog: pytest.LogCaptureFixture
    ) -> None:
        stored.plain("T", 10)
        stored.first["T", 0] = 4
        with caplog.at_level(logging.WARNING, "spark.sources.losses"):
            assert read(client, 0, 10, LAX) == [4, 5, 6, 7, 8, 9]
        assert "offsets 0 to 3 are beyond retention" in caplog.text

    def test_of_all_that_was_wanted(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 10)
        stored.first["T", 0] = 8
        assert read(client, 0, 5, LAX) == []
        with pytest.raises(DataLossError, match="offsets 0 to 4"):
            read(client, 0, 5)

    def test_between_two_pulls(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 10)

        def remove(answer: RemotingCommand) -> None:
            if answer.ext_fields["nextBeginOffset"] == "3":
                stored.first["T", 0] = 5

        change_pulls(stored, remove)
        with pytest.raises(DataLossError, match="offsets 3 to 4"):
            read(client, 0, 10)
        stored.first.clear()
        assert read(client, 0, 10, LAX) == [0, 1, 2, 5, 6, 7, 8, 9]

    def test_that_brokers_skip_silently(self, client: Cluster, stored: FakeQueues) -> None:
        """Whose log file was removed just now: a pull leaves those out, its queue still begins
        before them."""
        stored.plain("T", 10)
        stored.queues["T"][0][4:6] = [b"", b""]
        with pytest.raises(DataLossError, match="offsets 4 to 5"):
            read(client, 0, 10)
        assert read(client, 0, 10, LAX) == [0, 1, 2, 3, 6, 7, 8, 9]

    def test_that_brokers_skip_at_the_end_of_an_answer(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        stored.plain("T", 10)
        stored.queues["T"][0][5] = b""
        with pytest.raises(DataLossError, match="offsets 5 to 5"):
            read(client, 0, 6)

    def test_that_an_answer_without_messages_skips(
        self, client: Cluster, stored: FakeQueues
    ) -> None:
        stored.plain("T", 10)
        change_pulls(stored, lambda answer: _retry(answer, "3"))
        with pytest.raises(DataLossError, match="offsets 0 to 2"):
            read(client, 0, 10)

    def test_where_the_broker_selects(self, client: Cluster, stored: FakeQueues) -> None:
        """There only the queue's begin tells."""
        stored.plain("T", 10)
        rules = ReadRules(LossRule(), expression="A")
        assert read(client, 0, 10, rules) == [0, 3, 6, 9]

        def remove(answer: RemotingCommand) -> None:
            if answer.ext_fields["nextBeginOffset"] == "10":
                stored.first["T", 0] = 2

        change_pulls(stored, remove)
        with pytest.raises(DataLossError, match="offsets 0 to 1"):
            read(client, 0, 10, rules)


def _retry(answer: RemotingCommand, following: str) -> None:
    if answer.ext_fields["nextBeginOffset"] == following:
        answer.code, answer.body = 20, b""


def test_holes_of_a_compacted_topic(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 10)
    stored.queues["T"][0][0:2] = [b"", b""]
    stored.queues["T"][0][5] = b""
    config = TopicConfigAndQueueMapping(topic_name="T", attributes={"cleanup.policy": "COMPACTION"})
    stored.cluster.always(RequestCode.GET_TOPIC_CONFIG, body=config.to_json_bytes())
    assert read(client, 0, 10) == [2, 3, 4, 6, 7, 8, 9]
    stored.first["T", 0] = 4
    with pytest.raises(DataLossError, match="offsets 0 to 3"):
        read(client, 0, 10)


class TestShorterLogs:
    def test_a_master_that_has_less(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 5)
        with pytest.raises(DataLossError, match="the queue ends at offset 5, before 10"):
            read(client, 0, 10)
        assert read(client, 0, 10, LAX) == [0, 1, 2, 3, 4]

    def test_far_behind_its_end(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 5)
        change_pulls(stored, _moved_back)
        with pytest.raises(DataLossError, match="ends at offset 5, before 8"):
            read(client, 8, 10)
        assert read(client, 8, 10, LAX) == []

    def test_a_slave_that_lags_behind(self, client: Cluster, stored: FakeQueues) -> None:
        """It gets there within retryMs, or the read fails: the master has them."""
        stored.plain("T", 5)
        data = stored.routes["T"].broker_datas[0]
        data.broker_addrs[1] = data.broker_addrs.pop(0)
        with pytest.raises(UnavailableError, match="had nothing at offset 5 for 300 ms") as caught:
            read(client, 0, 10)
        assert "does it lag behind?" in str(caught.value)

    def test_messages_that_come_late(self, client: Cluster, stored: FakeQueues) -> None:
        stored.plain("T", 10)
        late = stored.queues["T"][0][5:]
        del stored.queues["T"][0][5:]
        waited: list[float] = []

        def pause(seconds: float) -> None:
            waited.append(seconds)
            stored.queues["T"][0][5:] = late

        client.pause = pause
        assert read(client, 0, 10) == list(range(10))
        assert len(waited) == 1


def _moved_back(answer: RemotingCommand) -> None:
    answer.code = 21
    answer.ext_fields["nextBeginOffset"] = "0"


def test_answers_that_do_not_move_on(client: Cluster, stored: FakeQueues) -> None:
    """A read ends, whatever a broker says."""
    stored.plain("T", 10)
    change_pulls(stored, lambda answer: answer.ext_fields.update(nextBeginOffset="0"))
    with pytest.raises(UnavailableError, match="had nothing at offset 0"):
        read(client, 0, 10)


def test_offsets_that_go_back(client: Cluster, stored: FakeQueues) -> None:
    """Within an answer, and from one to the next: each message once."""
    stored.plain("T", 10)

    def again(answer: RemotingCommand) -> None:
        answer.body = answer.body + answer.body

    change_pulls(stored, again)
    assert read(client, 0, 10) == list(range(10))

    def back(answer: RemotingCommand) -> None:
        following = int(answer.ext_fields["nextBeginOffset"])
        answer.ext_fields["nextBeginOffset"] = str(following - (following in (3, 4)))

    change_pulls(stored, back)
    assert read(client, 0, 10) == list(range(10))


def test_answers_that_go_beyond_the_end(client: Cluster, stored: FakeQueues) -> None:
    """Neither messages nor holes behind the range's end count."""
    stored.plain("T", 20)
    pull = stored.cluster.answers[RequestCode.PULL_MESSAGE]

    def more(request: RemotingCommand) -> RemotingCommand:
        answers = []
        for offset in (8, 9, 10, 14):
            request.ext_fields |= {"queueOffset": str(offset), "maxMsgNums": "1"}
            answers.append(pull(request))
        answers[-1].body = b"".join(each.body for each in answers)
        return answers[-1]

    stored.cluster.answers[RequestCode.PULL_MESSAGE] = more
    assert read(client, 8, 10) == [8, 9]


def test_a_jump_behind_what_retention_removed(client: Cluster, stored: FakeQueues) -> None:
    """What lies between is read, or told."""
    stored.plain("T", 10)
    stored.first["T", 0] = 4

    def jump(answer: RemotingCommand) -> None:
        if answer.ext_fields["nextBeginOffset"] == "4":
            answer.ext_fields["nextBeginOffset"] = "8"

    change_pulls(stored, jump)
    assert read(client, 0, 10, LAX) == [4, 5, 6, 7, 8, 9]


def test_records_of_another_topic(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 3)
    stored.plain("U", 3)
    stored.queues["T"][0][1] = stored.queues["U"][0][1]
    with pytest.raises(DamagedMessageError, match="offset 1 is of another topic, 'U'"):
        read(client, 0, 3)
    assert read(client, 0, 3, LAX) == [0, 2]


def test_records_of_another_queue(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 3, 3)
    stored.queues["T"][0][1] = stored.queues["T"][1][1]
    with pytest.raises(DamagedMessageError, match=r"queue 0: .*offset 1 is of another queue, 1"):
        read(client, 0, 3)
    assert read(client, 0, 3, LAX) == [0, 2]


def test_records_of_another_queue_among_many(client: Cluster, stored: FakeQueues) -> None:
    stored.plain("T", 100, 100)
    stored.queues["T"][0][60] = stored.queues["T"][1][60]
    part = Range("T", "broker-g", 0, 0, 100)
    with pytest.raises(DamagedMessageError, match="offset 60 is of another queue, 1"):
        list(RangeReader(client, part, FIRM).batches(BatchMaker(SCHEMA), 1 << 20))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda record: record[:-8], "where 107 are left"),
        (lambda record: record[:90] + b"!" + record[91:], "offset 1, physical offset"),
        (lambda record: b"\x7f" + record[1:], "where .* are left"),
        (lambda record: record[:3] + b"\0" + record[4:], "a record of"),
        (lambda record: record[:20], "is damaged"),
    ],
)
def test_damaged_records(
    client: Cluster, stored: FakeQueues, damage: Callable[[bytes], bytes], said: str
) -> None:
    stored.plain("T", 3)
    stored.queues["T"][0][1] = damage(stored.queues["T"][0][1])
    with pytest.raises((DamagedMessageError, DataLossError), match=said):
        read(client, 0, 3)


def test_damaged_records_as_a_warning(
    client: Cluster, stored: FakeQueues, caplog: pytest.LogCaptureFixture
) -> None:
    stored.plain("T", 3)
    record = stored.queues["T"][0][1]
    stored.queues["T"][0][1] = record[:90] + b"!" + record[91:]
    with caplog.at_level(logging.WARNING):
        assert read(client, 0, 3, LAX) == [0, 2]
    assert "left out" in caplog.text


def test_what_is_wanted(client: Cluster, stored: FakeQueues) -> None:
    """The hash codes of Aa and BB are equal: the broker cannot tell them apart."""
    tags = ["Aa", "BB", "C", "Aa"]
    stored.topic("T", [[Stored({"TAGS": tag}) for tag in tags]])
    rules = ReadRules(LossRule(), expression="Aa")
    assert read(client, 0, 4, rules) == [0, 1, 3]

    def is_aa(message: StoredMessage) -> bool:
        return message.properties["TAGS"] == "Aa"

    assert read(client, 0, 4, rules, is_aa) == [0, 3]


def test_offsets_of_a_logic_queue(client: Cluster, stored: FakeQueues) -> None:
    """A static topic's queue has an id and offsets of its own."""
    stored.plain("T", 5)
    stored.static("T")
    pull = stored.cluster.answers[RequestCode.PULL_MESSAGE]

    def logical(request: RemotingCommand) -> RemotingCommand:
        fields = request.ext_fields
        fields |= {"queueOffset": str(int(fields["queueOffset"]) - 1000), "queueId": "0"}
        answer = pull(request)
        moved = {
            name: str(int(answer.ext_fields[name]) + 1000)
            for name in ("nextBeginOffset", "minOffset", "maxOffset")
        }
        answer.ext_fields |= {**moved, "offsetDelta": "1000"}
        return answer

    stored.cluster.answers[RequestCode.PULL_MESSAGE] = logical
    part = Range("T", "broker-g", 7, 1001, 1004)
    found = list(RangeReader(client, part, FIRM).messages())
    assert [(each.queue_id, each.queue_offset) for each in found] == [
        (7, 1001),
        (7, 1002),
        (7, 1003),
    ]


def test_a_task_that_is_stopped_in_the_middle(client: Cluster, stored: FakeQueues) -> None:
    """As by LIMIT: no thread stays."""
    stored.plain("T", 10)
    messages: Any = RangeReader(client, Range("T", "broker-g", 0, 0, 10), FIRM).messages()
    assert next(messages).queue_offset == 0
    messages.close()
    assert client.max_offset(MessageQueue(topic="T", broker_name="broker-g", queue_id=0)) == (
        10,
        True,
    )
