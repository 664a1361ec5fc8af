"""Replication in a group with a controller, over loopback sockets and real files.

The truth is the bytes of the master's files, and what Java brokers said on the wire.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import pytest

from ha.epochs import epoch_list
from ha.handshake import OwnIdentity
from ha.link_errors import LinkClosedError
from ha.master_connector import Connected
from ha.master_hello import MasterHello
from ha.slave_progress import ReplicaState
from store.control_slots import (
    ALLOCATED_END,
    APPEND_END,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    SYNC_FLUSH_WANTED,
)
from tests.ha.master_world import Certificates
from tests.ha.member_world import FILE_SIZE, FIRST_EPOCH, Member
from tests.support.deadline import wait_until
from tests.support.flipping_relay import FlippingRelay

SECRET = b"the secret of this group's tests"
PAUSE = threading.Event()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def same_logs(master: Member, slave: Member, start: int = 0) -> None:
    """The slave has all of it, to the byte, and zeroes behind."""
    slave.wait_end(master.end)
    assert slave.digest(start, master.end) == master.digest(start, master.end)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_a_slave_gets_the_log_and_what_is_appended(tmp_path: Path, secret: bytes | None) -> None:
    with Member(tmp_path, 1, secret=secret) as master, Member(tmp_path, 2, secret=secret) as slave:
        end = master.append(100)
        assert end > 2 * FILE_SIZE
        master.lead()
        slave.follow(master.address)
        same_logs(master, slave)
        assert slave.hellos == [(1, FIRST_EPOCH, end)]
        wait_until(lambda: master.acked() == end)
        for _ in range(20):
            end = master.append()
            wait_until(lambda end=end: master.acked() == end)
        same_logs(master, slave)
        assert [*master.connected.values()] == [2]
        wait_until(lambda: slave.confirmed[-1] == end)
        wait_until(lambda: slave.grown[-1] == end)
        assert master.refusals() == slave.refusals() == {}


@pytest.mark.parametrize("port", ["x", "65536", "9" * 5_000])
def test_an_address_that_is_none_is_said_and_the_next_one_followed(
    tmp_path: Path, port: str
) -> None:
    """What a name server names: a Java one hands on whatever somebody has registered."""
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        master.append(3)
        master.lead()
        slave.follow(f"127.0.0.1:{port}")
        wait_until(lambda: "is not an address" in slave.error_text or slave.failures != [])
        assert len(slave.error_text) < 200
        slave.service.update_master_address(master.address)
        same_logs(master, slave)


# Frames


@pytest.mark.parametrize("batch", [1, 7, 50, 300, 100_000])
def test_frames_end_anywhere_and_whole_records_are_shown(tmp_path: Path, batch: int) -> None:
    with Member(tmp_path, 1, ha_transfer_batch_size=batch) as master, Member(tmp_path, 2) as slave:
        end = master.append(60)
        ends = {0, *(at + len(raw) for at, raw in master.log.records)}
        blanks = {at - at % FILE_SIZE for at, _ in master.log.records}
        master.lead()
        slave.follow(master.address)
        same_logs(master, slave)
        wait_until(lambda: master.acked() == end)
        assert {offset for _, offset in master.reported} <= ends | blanks


def test_many_slaves(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master:
        master.append(50)
        master.lead()
        slaves = [Member(tmp_path, broker_id) for broker_id in range(2, 7)]
        for slave in slaves:
            slave.follow(master.address)
        master.append(50)
        for slave in slaves:
            same_logs(master, slave)
        assert sorted(master.connected.values()) == [2, 3, 4, 5, 6]
        for slave in slaves:
            slave.close()
        wait_until(lambda: len(master.gone) == 5)


def test_a_log_that_begins_later(tmp_path: Path) -> None:
    start = 5 * FILE_SIZE
    with Member(tmp_path, 1) as master, Member(tmp_path, 2, files=0) as slave:
        master.begins_at(start)
        master.append(80)
        master.lead(epoch_list([(3, start)]))
        slave.follow(master.address, 3)
        same_logs(master, slave, start)
        assert slave.begun == [start]
        assert slave.counters[MIN_PHY_OFFSET] == start


def test_an_empty_master_is_followed_and_then_appends(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2, files=0) as slave:
        master.lead()
        slave.follow(master.address)
        wait_until(lambda: master.acked() == 0)
        master.append(3)
        same_logs(master, slave)


def test_the_next_file_is_waited_for(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2, files=1) as slave:
        master.append(100)
        master.lead()
        slave.follow(master.address)
        while slave.end < master.end:
            wait_until(
                lambda: slave.end == slave.counters[ALLOCATED_END] or slave.end == master.end
            )
            slave.allocate(slave.counters[ALLOCATED_END])
        same_logs(master, slave)


def test_flushed_bytes_only_are_reported(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2, ha_ack_level="flushed") as slave:
        end = master.append(10)
        master.lead()
        slave.follow(master.address)
        slave.wait_end(end)
        assert master.acked() == 0
        assert slave.counters[SYNC_FLUSH_WANTED] == end
        slave.flush()
        wait_until(lambda: master.acked() == end)


def test_what_was_not_flushed_is_waited_for_before_the_first_report(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2, ha_ack_level="flushed") as slave:
        end = master.append(10)
        slave.append(10)
        master.lead()
        slave.follow(master.address)
        wait_until(lambda: slave.counters[SYNC_FLUSH_WANTED] == end)
        assert master.acked() == -1
        slave.flush()
        wait_until(lambda: master.acked() == end)


# Decisions and orders


def test_nothing_is_taken_before_the_decision(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        master.append(10)
        master.lead()
        slave.decides = "nothing"
        slave.follow(master.address)
        wait_until(lambda: slave.hellos)
        assert (slave.end, master.reported) == (0, [])
        slave.service.transfer()
        same_logs(master, slave)


def test_a_master_that_is_not_followed_is_asked_again(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        master.append(10)
        master.lead()
        slave.decides = "hang_up"
        slave.follow(master.address)
        wait_until(lambda: len(slave.hellos) >= 3)
        slave.decides = "transfer"
        same_logs(master, slave)


def test_a_decision_on_an_answer_whose_link_is_closed_counts_for_no_other_link(
    tmp_path: Path,
) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        master.append(10)
        master.lead()
        slave.decides = "nothing"
        slave.follow(master.address)
        wait_until(lambda: slave.hellos)
        master.service.stop()
        wait_until(lambda: "closed the connection" in slave.error_text)
        other = epoch_list([(2, 0)])
        master.lead(other)
        PAUSE.wait(0.15)  # It would connect again after 30 ms.
        assert len(slave.hellos) == 1
        slave.service.transfer()
        wait_until(lambda: len(slave.hellos) == 2)
        assert slave.hellos[1][1] == other
        assert (slave.end, master.reported) == (0, [])
        slave.service.transfer()
        same_logs(master, slave)


def test_a_log_is_cut_behind_a_stop_and_the_same_master_followed_anew(tmp_path: Path) -> None:
    """The link publishes where it stands until it is closed: nothing comes back behind the cut."""
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        end = master.append(10)
        assert slave.append(14) > end
        master.lead()
        slave.decides = "nothing"
        slave.follow(master.address)
        wait_until(lambda: slave.hellos)
        slave.service.stop()
        slave.counters[MAX_PHY_OFFSET] = end
        slave.service.cut_half_record()
        assert slave.end == slave.counters[APPEND_END] == end
        slave.decides = "transfer"
        slave.follow(None)
        master.append(5, 90)
        same_logs(master, slave)
        assert len(slave.hellos) == 2


def test_who_does_not_lead_serves_nobody(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        master.append(10)
        slave.follow(master.address)
        master.wait_refused("not_master")
        assert slave.hellos == []
        master.lead()
        same_logs(master, slave)
        master.service.stop()
        wait_until(lambda: len(master.gone) == 1)
        refused = master.refusals()["not_master"]
        master.wait_refused("not_master", refused + 1)


def test_the_address_comes_later_and_moves(tmp_path: Path) -> None:
    with (
        Member(tmp_path, 1) as first,
        Member(tmp_path, 2) as slave,
        Member(tmp_path, 3) as second,
    ):
        first.append(10)
        second.append(20)
        first.lead()
        second.lead()
        slave.follow(None)
        wait_until(lambda: "where its HA port is" in slave.error_text)
        slave.service.update_master_address(first.address)
        same_logs(first, slave)
        slave.service.update_master_address(second.address)
        same_logs(second, slave)


def test_nothing_is_written_after_a_stop(tmp_path: Path) -> None:
    """What was not shown by then is zero; the log may have another writer at once."""
    with Member(tmp_path, 1, ha_transfer_batch_size=50) as master, Member(tmp_path, 2) as slave:
        master.append(100)
        master.lead()
        for _ in range(20):
            slave.follow(master.address)
            at = slave.end
            wait_until(lambda at=at: slave.end > at or slave.end == master.end)
            slave.service.stop()
            end = slave.end
            size = 8 * FILE_SIZE
            assert slave.bytes_of(0, size) == master.bytes_of(0, end) + bytes(size - end)
            assert slave.counters[APPEND_END] == end
        slave.follow(master.address)
        same_logs(master, slave)


def test_half_a_record_is_zeroed(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as broker:
        end = broker.append(30)
        broker.log.put(end, b"half a record")
        broker.counters[APPEND_END] = end + 13
        broker.service.cut_half_record()
        assert broker.bytes_of(end, end + 13) == bytes(13)
        assert broker.counters[APPEND_END] == end
        broker.service.cut_half_record()


def test_what_a_dead_predecessor_left_is_zeroed(tmp_path: Path) -> None:
    """It was killed within a frame: bytes lie behind what it had shown."""
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        end = master.append(40)
        slave.append(10)
        slave.log.put(slave.end, b"torn" * 100)
        slave.counters[APPEND_END] = slave.end + 400
        slave.decides = "nothing"
        master.lead()
        slave.follow(master.address)
        wait_until(lambda: slave.hellos)
        assert slave.bytes_of(slave.end, slave.end + 400) == bytes(400)
        slave.service.transfer()
        same_logs(master, slave)
        assert slave.end == end


def test_a_stop_waits_while_process_store_begins_the_log(tmp_path: Path) -> None:
    """That changes the log, on a thread that nothing interrupts."""
    with Member(tmp_path, 1) as master, Member(tmp_path, 2, files=0) as slave:
        master.begins_at(3 * FILE_SIZE)
        master.append(5)
        master.lead(epoch_list([(1, 3 * FILE_SIZE)]))
        may_begin, begins = threading.Event(), threading.Event()

        def begin_log(phy_offset: int) -> None:
            begins.set()
            assert may_begin.wait(10)
            slave.begin_log(phy_offset)

        slave.before_begin = begin_log
        slave.follow(master.address)
        assert begins.wait(10)
        stopping = threading.Thread(target=slave.service.stop)
        stopping.start()
        PAUSE.wait(0.05)
        assert stopping.is_alive()
        assert slave.begun == []
        may_begin.set()
        stopping.join(10)
        assert not stopping.is_alive()
        assert slave.begun == [3 * FILE_SIZE]


@pytest.mark.parametrize("secret", [None, SECRET])
def test_links_are_cut_at_random(tmp_path: Path, secret: bytes | None) -> None:
    """Either end goes away at any frame while the master appends: the bytes are the master's."""
    random = Random(11)
    with (
        Member(tmp_path, 1, secret=secret, ha_transfer_batch_size=90) as master,
        Member(tmp_path, 2, secret=secret) as slave,
    ):
        master.append(20)
        master.lead()
        slave.follow(master.address)
        for _ in range(40):
            master.append(random.randrange(1, 4))
            PAUSE.wait(random.random() / 100)
            if random.randrange(2):
                slave.service.stop()
                slave.follow(master.address)
            else:
                master.service.stop()
                master.lead()
        same_logs(master, slave)
        assert set(slave.refusals()) <= {"network"}
        assert set(master.refusals()) <= {"network", "not_master"}


# Who is let in


def test_a_stranger_to_the_secret_is_neither_served_nor_followed(tmp_path: Path) -> None:
    with (
        Member(tmp_path, 1, secret=SECRET) as master,
        Member(tmp_path, 2, secret=b"another secret of another group") as wrong,
        Member(tmp_path, 3) as silent,
        Member(tmp_path, 4) as plain_master,
    ):
        master.append(10)
        plain_master.append(10)
        master.lead()
        plain_master.lead()
        wrong.follow(master.address)
        wrong.wait_refused("not_proved")
        assert "its proof is wrong" in wrong.error_text
        silent.follow(master.address)
        master.wait_refused("not_proved")
        wait_until(lambda: "haSharedSecretFile set here" in silent.error_text)
        wrong.service.stop()
        wrong.follow(plain_master.address)
        wait_until(lambda: "it offers no proof" in wrong.error_text)
        assert wrong.end == silent.end == 0
        assert wrong.hellos == silent.hellos == []
        assert master.connected == {}


def test_a_trusted_address_needs_no_proof(tmp_path: Path) -> None:
    """As Java's slaves have none."""
    settings = {"ha_trusted_addresses": "127.0.0.1"}
    with (
        Member(tmp_path, 1, secret=SECRET, **settings) as master,
        Member(tmp_path, 2) as slave,
        Member(tmp_path, 3, secret=SECRET) as proved,
    ):
        master.append(10)
        master.lead()
        slave.follow(master.address)
        proved.follow(master.address)
        same_logs(master, slave)
        same_logs(master, proved)


def test_another_group_with_the_same_secret(tmp_path: Path) -> None:
    stranger = OwnIdentity("other", 0, "127.0.0.1:2", SECRET)
    with (
        Member(tmp_path, 1, secret=SECRET) as master,
        Member(tmp_path, 2, own=stranger) as slave,
    ):
        master.append(10)
        master.lead()
        slave.follow(master.address)
        master.wait_refused("bad_handshake")
        assert slave.hellos == []


def test_bits_that_flip_between_two_of_ours(tmp_path: Path) -> None:
    with Member(tmp_path, 1, secret=SECRET) as master, Member(tmp_path, 2, secret=SECRET) as slave:
        master.append(20)
        master.lead()
        host, _, port = master.address.partition(":")
        random = Random(3)
        with FlippingRelay((host, int(port))) as relay:
            slave.follow(relay.address)
            for number in range(30):
                relay.flip(
                    random.randrange(400), random.randrange(8), towards_client=number % 3 > 0
                )
                end = master.append(3)
                wait_until(lambda end=end: slave.end == end)
            assert relay.flipped > 10
            same_logs(master, slave)
        assert slave.refusals()["bad_checksum"] > 3
        assert not slave.refusals().keys() & {"bad_record", "bad_frame", "offset_mismatch"}


def test_certificates_prove_a_broker_and_hide_the_log(
    tmp_path: Path, certificates: Certificates
) -> None:
    good = {
        "ha_tls_enable": True,
        "ha_tls_certificate": certificates.certificate,
        "ha_tls_private_key": certificates.key,
        "ha_tls_trusted_certificates": certificates.authority,
    }
    bad = {
        **good,
        "ha_tls_certificate": certificates.stranger,
        "ha_tls_private_key": certificates.stranger_key,
    }
    with (
        Member(tmp_path, 1, **good) as master,
        Member(tmp_path, 2, **good) as slave,
        Member(tmp_path, 3, **bad) as stranger,
    ):
        master.append(120)
        master.lead()
        slave.follow(master.address)
        stranger.follow(master.address)
        for _ in range(10):
            end = master.append(3)
            wait_until(lambda end=end: master.acked() == end)
        same_logs(master, slave)
        master.wait_refused("tls")
        assert stranger.end == 0


# What it shows, and its limits


def test_flow_control_lets_everything_through(tmp_path: Path) -> None:
    """In frames of a tenth of a second."""
    with Member(tmp_path, 1, ha_flow_control=200_000) as master, Member(tmp_path, 2) as slave:
        master.append(150)
        master.lead()
        slave.follow(master.address)
        same_logs(master, slave)


def test_status_of_both_ends(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave, Member(tmp_path, 3) as third:
        end = master.append(5)
        master.lead()
        slave.follow(master.address)
        third.follow(master.address)
        wait_until(lambda: len({c for c, ack in master.reported if ack == end}) == 2)
        master.service.note_sync_state_set(frozenset({1, 2}))
        found = master.service.status()
        assert (found["master"], found["inSyncSlaveNums"]) == (True, 1)
        rows = {row["id"]: (row["inSync"], row["diff"]) for row in found["haConnectionInfo"]}
        assert rows == {"g:2": (True, 0), "g:3": (False, 0)}
        seen = slave.service.status()
        assert seen["master"] is False
        assert seen["haClientRuntimeInfo"]["masterAddr"] == master.address
        assert seen["haClientRuntimeInfo"]["state"] == "transfer"
        assert slave.service.link == seen["haClientRuntimeInfo"]["localAddr"] is not None
        facts = master.service.new_observer().observe()
        assert {(f.replica.id, f.lag_bytes) for f in facts.replicas} == {("g:2", 0), ("g:3", 0)}
        assert slave.service.new_observer().observe().client is not None
        slave.service.stop()
        assert slave.service.link is None


def test_who_leads_no_more_has_no_replicas_and_counts_anew_when_it_leads_again(
    tmp_path: Path,
) -> None:
    """Else a former master shows its slaves as gone for a day, and later a slave as if it had what
    an epoch that is over had confirmed."""
    with Member(tmp_path, 1) as master, Member(tmp_path, 2) as slave:
        end = master.append(5)
        master.lead()
        slave.follow(master.address)
        wait_until(lambda: master.acked() == end)
        observer = master.service.new_observer()
        assert [each.replica.id for each in observer.observe().replicas] == ["g:2"]
        master.service.stop()
        assert master.service.status()["haConnectionInfo"] == []
        assert observer.observe().replicas == ()
        slave.service.stop()
        master.lead()
        assert observer.observe().replicas == ()


def test_an_orderly_stop_of_a_leader_leaves_nothing_behind(tmp_path: Path) -> None:
    with Member(tmp_path, 2) as slave:
        with Member(tmp_path, 1) as master:
            end = master.append(5)
            master.lead()
            slave.follow(master.address)
            wait_until(lambda: master.acked() == end)
            wait_until(lambda: master.service.registry.live()[0].state is ReplicaState.in_sync)
            end = master.append(50)
        assert slave.end == end


def test_nobody_is_woken_for_growth_that_nobody_wants_to_know(tmp_path: Path) -> None:
    with Member(tmp_path, 1) as master:
        master.service.lead(FIRST_EPOCH, 1, lambda: 0, tells_growth=False)
        for _ in range(3):
            master.append()
        PAUSE.wait(0.05)
        assert master.grown == []
        master.service.stop()
        master.lead()
        wait_until(lambda: master.grown == [master.end])


def test_a_master_of_ours_that_takes_no_seals_is_not_followed(tmp_path: Path) -> None:
    """Of an older version: what this slave reports could be said by anybody on the way."""
    with Member(tmp_path, 2, secret=SECRET) as slave:
        hello = MasterHello(0, 0, None, is_proved=True)
        connected = Connected(None, hello, is_checked=True)  # type: ignore[arg-type]
        with pytest.raises(LinkClosedError, match="seals no reports"):
            slave.service._client._check(connected)
