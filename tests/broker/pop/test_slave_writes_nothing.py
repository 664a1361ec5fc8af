"""A slave's log is its master's: no request of pop writes into it."""

from __future__ import annotations

from pathlib import Path

from remoting.body.topic_config import TopicConfig
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from store.control_slots import ALLOCATED_END, MAX_PHY_OFFSET
from store.replica_log import ReplicaLog
from tests.broker.member_world import Member
from tests.broker.served_broker import FILE_SIZE, ServedBroker


class Slave(ServedBroker):
    """An empty one, whose process `ha` has said where the log begins."""

    def _allocate(self) -> None:
        if not self.page.counters[ALLOCATED_END]:
            self._store._allocate.begin_at(0)
        super()._allocate()


def test_acks_and_changes_leave_the_log_alone(tmp_path: Path) -> None:
    master = Member(tmp_path / "a")
    master.lead()
    for number in range(3):
        master.send(master.connect(), b"%d" % number)
    data = master.log_bytes()
    master.close()
    root = tmp_path / "b"
    root.mkdir()
    slave = Slave(root, {"brokerRole": "SLAVE", "brokerId": "1", "brokerName": "broker-a"})
    slave.controller._tables.topics.update(TopicConfig(topic_name="T"))
    path = slave._options.store.commit_log_path
    log = ReplicaLog(path, FILE_SIZE, slave.page, lambda: None)
    log.open()
    log.make_room(len(data))
    log.write(0, data)
    log.advance(len(data))
    log.publish(len(data))
    slave.dispatch()
    peer = slave.connect()
    handle = f"0 {slave.clock.now_ms()} 60000 0 0 broker-a 0 0"
    fields = {"consumerGroup": "G", "topic": "T", "queueId": "0", "extraInfo": handle}
    for code, more in ((200051, {}), (200053, {"invisibleTime": "1000"})):
        request = RemotingCommand.request(code, {**fields, "offset": "0", **more})
        peer.feed(encode_command(request))
        slave.turn()
    answers = peer.answers()
    assert slave.page.counters[MAX_PHY_OFFSET] == len(data)
    assert (path / ("0" * 20)).read_bytes()[: len(data)] == data
    assert len(answers) == 2
    assert all(answer.code for answer in answers)
    slave.close()
