"""broker.slave.promotion: what a slave writes down, and which starts as master it stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.settings.startup_options import StartupOptions
from broker.slave.cut_log import CutLog
from broker.slave.promotion import (
    FILE_NAME,
    ReplicaJournal,
    ReplicaState,
    check_promotion,
    complete_promotion,
    read_state,
)
from broker.slave.sync_kind import SLAVE_SYNC_SUCCESS, SyncKind
from conf.errors import StartupExitError
from ha.inspection import Inspection, Verdict
from remoting.body.kv_table import KVTable
from remoting.errors import RemotingConnectError
from remoting.remoting_command import RemotingCommand
from remoting.response_table import ResponseCallback
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.errors import StoreError
from store.resync_request import (
    ResyncAction,
    ResyncRequest,
    find_request,
    finish_request,
    write_request,
)
from tests.support.manual_clock import ManualClock
from tests.support.our_broker import BrokerDiedError, OurBroker
from tests.support.shared_memory import close_page, fresh_page

MASTER = "10.0.0.1:10911"


class Slave:
    """A journal with everything around it."""

    master_address: str | None = MASTER

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock()
        self.page = fresh_page()
        self.master_max: int | None = None
        self.copy_tables(1_000)
        self.journal = self.reborn()

    def copy_tables(self, wall_ms: int) -> None:
        """SlaveSynchronize has copied every table."""
        for kind in SyncKind:
            self.page.counters[SLAVE_SYNC_SUCCESS + kind] = wall_ms

    def reborn(self) -> ReplicaJournal:
        self.journal = ReplicaJournal(self.root, "broker-a", 1, self.page, self, self.clock)
        return self.journal

    def invoke_async(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        assert (address, command.code) == (MASTER, 28)
        if self.master_max is None:
            callback(None, RemotingConnectError(address, "refused"))
            return
        table = {"commitLogMinOffset": "0", "commitLogMaxOffset": str(self.master_max)}
        body = KVTable(table=table).to_json_bytes()
        callback(command.response(0, body=body), None)

    def has(self, end: int, flushed: int | None = None) -> None:
        self.page.counters[MAX_PHY_OFFSET] = end
        self.page.counters[FLUSHED_OFFSET] = end if flushed is None else flushed

    def inspected(self, verdict: Verdict, master_max: int, common: int = -1) -> None:
        self.journal.on_inspection(
            Inspection(
                verdict=verdict,
                text="",
                master_address=MASTER,
                master_max=master_max,
                common_offset=common,
            )
        )

    def tick(self) -> None:
        self.clock.advance(5_000)
        self.journal.tick(self.master_address)

    @property
    def written(self) -> ReplicaState | None:
        return read_state(self.root / FILE_NAME)


@pytest.fixture
def slave(tmp_path: Path) -> Iterator[Slave]:
    found = Slave(tmp_path)
    yield found
    close_page(found.page)


def is_refused(root: Path, **settings: object) -> str:
    """The text of the refusal; "" when a master may start here."""
    try:
        check_promotion(options_of(root, **settings))
    except StartupExitError as error:
        return error.text
    return ""


def options_of(root: Path, **settings: object) -> StartupOptions:
    texts = {"storePathRootDir": root, "brokerRole": "ASYNC_MASTER", **settings}
    return StartupOptions.from_settings({key: str(value) for key, value in texts.items()})


# -- what is written ---------------------------------------------------------------------------


def test_nothing_is_written_before_something_is_known(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.WAIT, -1)
    slave.tick()
    slave.journal.close()
    assert slave.written is None
    assert is_refused(slave.root) == ""


def test_the_file(slave: Slave) -> None:
    slave.has(500, flushed=400)
    slave.inspected(Verdict.GO, 800)
    assert json.loads((slave.root / FILE_NAME).read_text()) == {
        "role": "SLAVE",
        "brokerName": "broker-a",
        "brokerId": 1,
        "masterAddress": MASTER,
        "masterMaxOffset": 800,
        "masterAskedAt": 1_700_000_000_000,
        "lagBytes": 300,
        "masterSilentSince": 0,
        "ownMaxOffset": 500,
        "flushedOffset": 400,
        "commonOffset": -1,
        "firstCopyDone": False,
        "inSync": False,
        "state": "go",
        "tablesCopiedAt": 1_000,
        "writtenAt": 1_700_000_000_000,
    }


def test_it_is_in_sync_when_it_has_come_to_where_the_master_was(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 800)
    slave.master_max = 900
    slave.tick()
    assert slave.journal._state.masterMaxOffset == 900
    assert slave.journal._state.masterAskedAt == slave.clock.now_ms()
    slave.has(900)
    slave.master_max = 5_000
    slave.tick()
    written = slave.written
    assert written is not None
    assert (written.masterMaxOffset, written.ownMaxOffset) == (900, 900)
    assert (written.inSync, written.firstCopyDone) == (True, True)
    slave.has(4_000)
    slave.journal.close()
    written = slave.written
    assert written is not None
    assert (written.lacks(), written.inSync, written.firstCopyDone) == (1_000, False, True)


def test_who_is_always_behind_is_not_in_sync(slave: Slave) -> None:
    """20 MB/s, and four seconds behind at each look: each end is reached before the next look."""
    rate = 20_000_000
    slave.has(6 * rate)
    slave.inspected(Verdict.GO, 10 * rate)
    for second in (15, 20, 25):
        slave.has((second - 4) * rate)
        slave.master_max = second * rate
        slave.tick()
    written = slave.written
    assert written is not None
    assert (written.lacks(), written.lagBytes, written.inSync) == (0, 4 * rate, False)
    # Then the master is lost, and the slave comes to where it was at the last look.
    slave.master_max = None
    slave.has(25 * rate)
    for _ in range(3):
        slave.tick()
    text = is_refused(slave.root)
    assert f"{4 * rate} bytes behind" in text
    assert "the master stopped responding 5.0 s later" in text


@pytest.mark.parametrize(("lag", "in_sync"), [(16 << 20, True), ((16 << 20) + 1, False)])
def test_what_is_on_its_way_is_no_backlog(slave: Slave, lag: int, in_sync: bool) -> None:
    end = 1 << 30
    slave.has(end)
    slave.inspected(Verdict.GO, end)
    slave.master_max = end + lag
    slave.tick()
    slave.has(end + lag)
    slave.tick()
    assert slave.written is not None
    assert slave.written.inSync is in_sync
    assert (is_refused(slave.root) == "") is in_sync
    slave.tick()
    slave.tick()
    assert is_refused(slave.root) == "", "nothing was behind at the next look"


def test_it_is_not_written_again_when_nothing_has_changed(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    slave.master_address = None
    before = (slave.root / FILE_NAME).stat().st_ino
    for _ in range(3):
        slave.tick()
        slave.inspected(Verdict.WAIT, -1)
    slave.journal.close()
    assert (slave.root / FILE_NAME).stat().st_ino == before


def test_a_master_that_does_not_answer_changes_nothing(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 800)
    slave.tick()
    slave.tick()
    assert slave.journal._state.masterMaxOffset == 800


def test_what_a_life_before_knew_is_known(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.DIVERGED, 800, common=300)
    slave.reborn()
    assert slave.journal._state.masterMaxOffset == 800
    slave.inspected(Verdict.WAIT, -1)
    slave.inspected(Verdict.GO, -1)  # Not compared.
    slave.journal.close()
    written = slave.written
    assert written is not None
    assert (written.state, written.commonOffset) == ("diverged", 300)


@pytest.mark.parametrize("verdict", [Verdict.START_AT, Verdict.BELOW_MIN])
def test_who_starts_over_has_not_finished_its_first_copy(slave: Slave, verdict: Verdict) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    assert slave.written is not None
    assert slave.written.firstCopyDone
    slave.inspected(verdict, 5_000)
    assert not slave.written.firstCopyDone


def test_a_file_that_is_none_is_written_anew(
    slave: Slave, caplog: pytest.LogCaptureFixture
) -> None:
    (slave.root / FILE_NAME).write_text("{}")
    slave.reborn()
    assert f"{FILE_NAME}: malformed" in caplog.text
    slave.inspected(Verdict.GO, 5)
    assert slave.written is not None


def test_a_full_disk_stops_nobody(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.root.joinpath(f"{FILE_NAME}.tmp").mkdir()
    slave.inspected(Verdict.GO, 5)
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(
    "change",
    [{"masterMaxOffset": "8"}, {"inSync": 1}, {"state": None}, {"ownMaxOffset": True}],
)
def test_values_of_the_wrong_kind(slave: Slave, change: dict[str, Any]) -> None:
    slave.inspected(Verdict.GO, 5)
    path = slave.root / FILE_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(StoreError, match=next(iter(change))):
        read_state(path)


# -- which starts are refused ------------------------------------------------------------------


def test_a_slave_that_lacks_bytes_is_not_promoted(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    slave.master_max = 750
    slave.tick()
    slave.journal.close()
    text = is_refused(slave.root)
    for words in ("250 bytes", FILE_NAME, MASTER, "UTC", "haPromoteUnclean=true", "old master"):
        assert words in text
    assert "\n" not in text
    assert is_refused(slave.root, haPromoteUnclean="true") == ""
    assert is_refused(slave.root, brokerRole="SLAVE", brokerId=1) == ""
    assert "250 bytes" in is_refused(slave.root, brokerRole="SYNC_MASTER")


@pytest.mark.parametrize(
    ("verdict", "own", "master", "common", "words"),
    [
        (Verdict.GO, 500, 500, -1, ""),
        (Verdict.GO, 600, 500, -1, ""),
        (Verdict.START_AT, 0, 500, -1, "500 bytes"),
        (Verdict.START_AT, 0, 500, -1, "first copy was not finished"),
        (Verdict.BELOW_MIN, 400, 500, -1, "100 bytes"),
        (Verdict.DIVERGED, 500, 500, 300, "200 bytes"),
        (Verdict.DIVERGED, 500, 500, 300, "had diverged"),
        (Verdict.DIVERGED, 500, 500, -1, "500 bytes"),
        (Verdict.AHEAD, 500, 400, 400, ""),
        (Verdict.AHEAD, 500, 400, 300, "100 bytes"),
        (Verdict.GO, 500, -1, -1, "never been compared"),
    ],
)
def test_who_may_be_promoted(
    slave: Slave, verdict: Verdict, own: int, master: int, common: int, words: str
) -> None:
    slave.has(own)
    slave.inspected(verdict, master, common)
    text = is_refused(slave.root)
    assert words in text
    assert bool(text) == bool(words)


def test_who_has_never_copied_the_tables_is_refused(slave: Slave) -> None:
    """mqchaos promote,cut, seed 56000: every consumer began anew."""
    slave.copy_tables(0)
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    assert "had never copied topics, groups and offsets" in is_refused(slave.root)
    for kind in SyncKind:
        assert is_refused(slave.root) != ""
        slave.page.counters[SLAVE_SYNC_SUCCESS + kind] = 1_700_000_000_000
        slave.journal.close()
    assert is_refused(slave.root) == ""
    slave.copy_tables(0)  # A new life: the tables of the one before are there.
    slave.reborn().close()
    assert is_refused(slave.root) == ""


def test_the_first_copy_of_the_tables_is_written_at_once(slave: Slave) -> None:
    """Not at the next tick, five seconds later: the master may be lost before."""
    slave.copy_tables(0)
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    slave.copy_tables(2_000)
    slave.journal.tables_copied(MASTER)
    assert (slave.written or ReplicaState()).tablesCopiedAt == 2_000
    slave.copy_tables(3_000)
    slave.journal.tables_copied(MASTER)
    assert (slave.written or ReplicaState()).tablesCopiedAt == 2_000, "from then on at ticks"


def test_an_operator_may_ask_before(slave: Slave) -> None:
    assert "nothing is recorded yet" in slave.journal.outlook().objection
    slave.has(500)
    slave.inspected(Verdict.GO, 800)
    assert "at 2023-11-14 22:13:20 UTC this slave lacked 300 bytes" in (
        slave.journal.outlook().objection
    )
    slave.has(800)
    assert slave.journal.outlook().objection == ""
    assert "was last seen at 2023-11-14 22:13:20 UTC" in slave.journal.outlook().basis


def test_a_file_of_a_version_that_recorded_no_tables(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    path = slave.root / FILE_NAME
    tree = json.loads(path.read_text())
    del tree["tablesCopiedAt"]
    path.write_text(json.dumps(tree))
    assert is_refused(slave.root) == ""


def test_unflushed_bytes_do_not_count_when_the_machine_went_down(slave: Slave) -> None:
    slave.has(500, flushed=200)
    slave.inspected(Verdict.GO, 500)
    abort = slave.root / "abort"
    assert is_refused(slave.root) == ""
    abort.write_text(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    assert is_refused(slave.root) == ""
    abort.write_text("another boot")
    assert "300 bytes" in (text := is_refused(slave.root))
    assert "the machine went down" in text


def test_in_the_middle_of_a_resync(slave: Slave) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    write_request(slave.root, ResyncRequest(action=ResyncAction.START_OVER, reason="r"))
    assert "resync.json" in is_refused(slave.root)
    assert "resync.json" in slave.journal.outlook().objection
    assert is_refused(slave.root, haPromoteUnclean="true") == ""
    complete_promotion(options_of(slave.root, haPromoteUnclean="true"))
    assert find_request(slave.root) is None
    assert (slave.root / "resync.json.refused").exists()


def test_after_the_log_was_cut(slave: Slave) -> None:
    """Until the tables were copied, even if they were in a life before."""
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    slave.journal.close()
    assert is_refused(slave.root) == ""
    write_request(slave.root, ResyncRequest(action=ResyncAction.TRUNCATE, offset=400))
    finish_request(slave.root)
    for objection in (is_refused(slave.root), slave.journal.outlook().objection):
        assert "resync.json.done: the log was cut at 400, and topics" in objection
    assert is_refused(slave.root, haPromoteUnclean="true") == ""
    cut_log = CutLog(slave.root)
    for kind in SyncKind:
        assert cut_log.objection is not None
        cut_log.copied(kind)
    assert cut_log.objection is None
    assert is_refused(slave.root) == slave.journal.outlook().objection == ""


@pytest.mark.parametrize("action", list(ResyncAction))
def test_a_cut_that_is_accepted_is_forgotten(slave: Slave, action: ResyncAction) -> None:
    slave.inspected(Verdict.GO, 500)
    write_request(slave.root, ResyncRequest(action=action))
    finish_request(slave.root)
    assert CutLog(slave.root).objection is not None
    complete_promotion(options_of(slave.root, haPromoteUnclean="true"))
    assert CutLog(slave.root).objection is None


def test_the_exit_is_that_of_other_refusals(slave: Slave) -> None:
    slave.inspected(Verdict.GO, 500)
    with pytest.raises(StartupExitError) as caught:
        check_promotion(options_of(slave.root))
    assert (caught.value.exit_code, caught.value.to_stdout) == (255, False)


def test_a_file_that_cannot_be_read_refuses(slave: Slave) -> None:
    for text in ("?", '{"a": ' + "[" * 100_000):
        (slave.root / FILE_NAME).write_text(text)
        assert "malformed" in is_refused(slave.root)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("writtenAt", 10**16),
        ("masterAskedAt", 10**16),
        ("tablesCopiedAt", 253_402_300_800_000),
        ("tablesCopiedAt", -2),
        ("lagBytes", -2),
        ("masterMaxOffset", 10**40),
    ],
)
def test_a_number_that_no_slave_writes_refuses(slave: Slave, name: str, number: int) -> None:
    """A time beyond all calendars ended the start, and haStatus, with a traceback."""
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    path = slave.root / FILE_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: number}))
    assert f"{FILE_NAME}: {name}: no slave writes such a number" in is_refused(slave.root)
    assert slave.reborn().outlook().objection.endswith("nothing is recorded yet")


def test_later_starts_of_the_new_master_are_free(
    slave: Slave, caplog: pytest.LogCaptureFixture
) -> None:
    slave.has(500)
    slave.inspected(Verdict.GO, 500)
    complete_promotion(options_of(slave.root, brokerRole="SLAVE", brokerId=1))
    assert (slave.root / FILE_NAME).exists()
    slave.clock.advance(2_500)
    slave.has(600)
    slave.journal.close()
    complete_promotion(options_of(slave.root))
    assert "0 bytes behind then; this slave's last entry was written 2.5 s later" in caplog.text
    assert not (slave.root / FILE_NAME).exists()
    kept = read_state(slave.root / "replica.json.promoted")
    assert kept is not None
    assert kept.masterMaxOffset == 500
    assert is_refused(slave.root) == ""
    complete_promotion(options_of(slave.root))


def test_a_loss_that_was_accepted_is_logged(slave: Slave, caplog: pytest.LogCaptureFixture) -> None:
    slave.inspected(Verdict.GO, 500)
    complete_promotion(options_of(slave.root, haPromoteUnclean="true"))
    assert "lacked 500 bytes" in caplog.text
    assert is_refused(slave.root) == ""


def test_the_whole_way(tmp_path: Path, slave: Slave) -> None:
    """The real program: refused with one line and 255, then promoted, then free."""
    broker = OurBroker(tmp_path)
    broker.store_dir.mkdir()
    slave.root = broker.store_dir
    slave.reborn()
    slave.inspected(Verdict.GO, 500)
    with pytest.raises(BrokerDiedError, match=r"ASYNC_MASTER refused.*lacked 500 bytes"):
        broker.start()
    assert (broker.store_dir / FILE_NAME).exists()
    assert not (broker.store_dir / "commitlog").exists()
    broker.settings["haPromoteUnclean"] = "true"
    with broker.start():
        assert not (broker.store_dir / FILE_NAME).exists()
    del broker.settings["haPromoteUnclean"]
    with broker.start():
        assert (broker.store_dir / "replica.json.promoted").exists()
