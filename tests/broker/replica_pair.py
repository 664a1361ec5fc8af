"""Two commit logs on disk, ours and a master's, and the master's remoting port as a function."""

from __future__ import annotations

from pathlib import Path

from broker.slave.log_comparison import OwnLog
from ipc.control_page import ControlPage
from remoting.body.kv_table import KVTable
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from tests.support.plain_log import PlainLog
from tests.support.shared_memory import fresh_page

MASTER = "10.0.0.1:10911"


class FakeMaster:
    """Answers 28 and 33 over a PlainLog as ours do, or as Java does. Stands for RemotingClient
    and RemoteLog."""

    def __init__(self, log: PlainLog, *, java: bool = False) -> None:
        self.log = log
        self.java = java
        self.min_offset = 0
        self.max_override: int | None = None
        self.asked: list[int] = []
        self.is_silent = False
        self.silent_after: int | None = None
        self.refusal: str | None = None
        self.ha_protocol: str | None = None
        self.refuses: tuple[int, ...] = (28, 33)

    @property
    def max_offset(self) -> int:
        return self.log.end if self.max_override is None else self.max_override

    def record_at(self, phy_offset: int) -> bytes | None:
        self.asked.append(phy_offset)
        if not self.min_offset <= phy_offset < self.max_offset:
            return None
        if self.java:
            return self._java_record_at(phy_offset)
        return dict(self.log.records).get(phy_offset)

    def _java_record_at(self, phy_offset: int) -> bytes | None:
        """As many bytes as the int there says, whatever it is."""
        size = int.from_bytes(self.log.bytes_at(phy_offset, 4), "big", signed=True)
        if size < 0:
            raise ValueError("java.lang.IllegalArgumentException: newLimit < 0")
        end = min(self.log.file_size, self.max_offset - phy_offset + phy_offset % 4096)
        if phy_offset % self.log.file_size + size > end:
            return None
        return self.log.bytes_at(phy_offset, size)

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert address == MASTER
        if self.is_silent or timeout_ms <= 0 or len(self.asked) == self.silent_after:
            raise RemotingConnectError(address, "refused")
        if self.refusal is not None and command.code in self.refuses:
            return command.response(ResponseCode.SYSTEM_ERROR, self.refusal)
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            table = {
                "commitLogMinOffset": str(self.min_offset),
                "commitLogMaxOffset": str(self.max_offset),
            }
            if self.ha_protocol is not None:
                table["haProtocol"] = self.ha_protocol
            return command.response(ResponseCode.SUCCESS, body=KVTable(table=table).to_json_bytes())
        assert command.code == RequestCode.VIEW_MESSAGE_BY_ID
        offset = int(command.ext_fields["offset"])
        try:
            record = self.record_at(offset)
        except ValueError as error:
            return command.response(ResponseCode.SYSTEM_ERROR, str(error))
        if record is None:
            text = f"can not find message by the offset, {offset}"
            return command.response(ResponseCode.SYSTEM_ERROR, text)
        return command.response(ResponseCode.SUCCESS, body=record)


class ReplicaPair:
    """Ours and the master's, with `common` records the same, then records of each one's own."""

    def __init__(
        self,
        directory: Path,
        *,
        common: int,
        ours: int = 0,
        theirs: int = 0,
        java: bool = False,
        start: int = 0,
    ) -> None:
        self.own = PlainLog(directory / "own", start=start)
        theirs_log = PlainLog(directory / "master", start=start)
        for number in range(common):
            for log in (self.own, theirs_log):
                log.append(body_of(number), topic=f"T{number % 3}")
        self.common_end = self.own.end
        for number in range(ours):
            self.own.append(b"ours" + body_of(number), topic="T0")
        for number in range(theirs):
            theirs_log.append(b"the master's" + body_of(number), topic="T0")
        self.master = FakeMaster(theirs_log, java=java)
        self.page: ControlPage = fresh_page()
        self.page.counters[MIN_PHY_OFFSET] = self.own_min = start
        self.own_max = self.own.end
        self.reader = CommitLogReader(self.own.directory, self.own.file_size, self.page)

    @property
    def own_max(self) -> int:
        return self.page.counters[MAX_PHY_OFFSET]

    @own_max.setter
    def own_max(self, value: int) -> None:
        self.page.counters[MAX_PHY_OFFSET] = value

    def own_log(self, near_end: int = 0) -> OwnLog:
        return OwnLog(self.reader, self.own_min, self.own_max, lambda: near_end)


def body_of(number: int) -> bytes:
    """Bodies of many sizes."""
    return b"%06d" % number * (1 + number % 7)
