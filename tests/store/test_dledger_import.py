"""`python -m store.dledger_import`: what is taken from a DLedger store, what is refused, and what a
broker of ours makes of it. Truth: the bytes of three 5.3.3 brokers (golden/dledger-5.3.3) with what
their client was told, and the list of messages of a generator."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.dledger import import_run, target_log, unfinished_import
from store.dledger.entry import ENTRY_HEAD_SIZE, EntryHead, find_unit, read_head
from store.dledger.node_files import NodeFiles
from store.dledger_import import DONE, REFUSED, main
from store.errors import StoreError
from store.mapped_file_queue import list_store_files
from store.message import Message
from store.message_codec import (
    TRANSACTION_COMMIT,
    TRANSACTION_ROLLBACK,
    decode_message_id,
    decode_record,
    encode_record,
    is_blank_at,
)
from store.store_checker import check_store
from store.store_lock import StoreLock
from tests.faults.store_world import FILE_SIZE as OUR_FILE_SIZE
from tests.faults.store_world import StoreDesk, World
from tests.support.archives import unpack
from tests.support.dledger_store import (
    FILE_SIZE,
    START_MS,
    DledgerStore,
    group,
    message,
    numbered,
)
from tests.support.plain_log import PlainLog

GOLDEN = Path(__file__).parents[1] / "golden" / "dledger-5.3.3"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """dl0 (the first leader, killed), dl1 (the second), dl2 (a follower)."""
    directory = tmp_path_factory.mktemp("golden")
    unpack(GOLDEN / "store-3-nodes.tar.xz", directory)
    return directory


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit status, and what was said."""
    capsys.readouterr()
    status = main([str(each) for each in arguments])
    return status, capsys.readouterr().out


def stored(target: Path) -> list[Message]:
    """All records of the target's log, each at the place that it says."""
    found = []
    for file in list_store_files(target / "commitlog"):
        raw, position = file.path.read_bytes(), 0
        while any(raw[position : position + 8]) and not is_blank_at(raw, position):
            each, size = decode_record(raw, position)
            assert each.phy_offset == file.start_offset + position
            found.append(each)
            position += size
    return found


def without_place(each: Message) -> Message:
    return dataclasses.replace(each, phy_offset=0)


def opened(target: Path) -> tuple[dict[tuple[str, int], int], list[str]]:
    """What a store of ours makes of it: where the queues end; what a check finds afterwards."""
    world = World(target).boot()
    desk = StoreDesk(world).open()
    desk.dispatch()
    maxima = world.queue_maxima()
    desk.abandon()
    report = check_store(target, hash_slots=16)
    world.close()
    return maxima, report.errors


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What was said by a run that imports nothing."""
    status, said = run(capsys, *arguments)
    assert status == REFUSED, said
    return said


def imported(capsys: pytest.CaptureFixture[str], source: Path, target: Path, *more: object) -> str:
    """With files of the size that `opened` expects."""
    status, said = run(capsys, source, target, "--file-size", OUR_FILE_SIZE, *more)
    assert status == DONE, said
    return said


# -- Java's bytes ------------------------------------------------------------------------------


def test_the_codec_reads_what_java_wrote(golden: Path) -> None:
    data = memoryview((golden / "dl1/dledger-n1/data" / ("0" * 20)).read_bytes())
    index = (golden / "dl1/dledger-n1/index" / ("0" * 20)).read_bytes()
    heads, at = [], 0
    while isinstance(head := read_head(data, at, at), EntryHead):
        heads.append(head)
        assert find_unit(index[32 * head.index : 32 * head.index + 32]) == head
        at += head.size
    assert (heads[0], heads[20]) == (EntryHead(0, 1, 0, 255), EntryHead(20, 2, 5100, 256))
    assert [head.index for head in heads] == list(range(21))


def test_java_s_messages_come_over(
    golden: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The client sent D000 to D019 alternately to two queues, and `after` once dl0 was killed."""
    said = imported(
        capsys, golden / "dl1", target, "--other", golden / "dl0", "--other", golden / "dl2"
    )
    assert "TDl 0: 11 messages, queue offsets 0 to 10\n" in said
    assert "a majority has them all" in said
    sent = [(n % 2, n // 2, b"D%03d" % n) for n in range(20)] + [(0, 10, b"after")]
    found = stored(target)
    assert [(m.queue_id, m.queue_offset, m.body) for m in found] == sent
    assert found[3].find_property("UNIQ_KEY") == "D" + "3".rjust(31, "0")
    text = (GOLDEN / "dltest.txt").read_text()
    told = re.findall(r"'msgId': '(\w+)'", text)
    assert [decode_message_id(each)[0] for each in told] == [
        found[n].store_host for n in (0, 1, 19)
    ]
    assert opened(target) == ({("TDl", 0): 11, ("TDl", 1): 10}, [])


def test_java_s_killed_leader_is_older_than_the_others(
    golden: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, golden / "dl0", target, "--other", golden / "dl2")
    assert not target.exists()
    assert "its log is newer" in said
    assert "entry 20 of term 2, not entry 19 of term 1" in said
    # Alone, nobody can know; that is what it says.
    said = imported(capsys, golden / "dl0", target)
    assert "one node cannot know" in said
    assert len(stored(target)) == 20


def test_tables_are_copied_as_they_are(
    golden: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "the last leader was" not in imported(capsys, golden / "dl1", target)
    _, said = run(capsys, golden / "dl2", "--dry-run")
    assert "the last leader was n1, not n2: consumer offsets" in said
    before = {path.name: path.read_bytes() for path in (golden / "dl1/config").iterdir()}
    assert {path.name: path.read_bytes() for path in (target / "config").iterdir()} == before
    assert {"topics.json", "subscriptionGroup.json", "consumerOffset.json"} <= before.keys()


def test_a_table_with_secrets_stays_private(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(1))
    path = store.root / "config" / "users.json"
    path.write_text("{}")
    path.chmod(0o600)
    imported(capsys, store.root, target)
    assert stat.S_IMODE((target / "config" / "users.json").stat().st_mode) == 0o600


def test_a_source_stays_as_it_was(
    golden: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def state() -> dict[Path, tuple[int, int, int]]:
        found = {path: path.stat() for path in golden.rglob("*") if path.is_file()}
        return {p: (s.st_mtime_ns, s.st_ctime_ns, s.st_size) for p, s in found.items()}

    before = state()
    imported(capsys, golden / "dl1", target, "--other", golden / "dl0")
    assert state() == before


# -- all that a record says --------------------------------------------------------------------


def test_every_field_but_the_place_is_kept(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Hosts of both kinds, long names (V2), empty and large bodies, files that end with a blank."""
    v6 = bytes(range(16)) + bytes((0, 0, 0x2A, 0x9F))
    sent = [
        message(0, flag=7, reconsume_times=3),
        dataclasses.replace(message(1), body=b"", sys_flag=0x700),
        dataclasses.replace(message(2), sys_flag=0x30, born_host=v6, store_host=v6),
        message(3, topic="%RETRY%" + "g" * 180),
        *(message(n, queue_offset=n, body=bytes([n]) * 1500) for n in range(4, 30)),
        message(30, sys_flag=TRANSACTION_ROLLBACK, topic="Other"),
    ]
    store = DledgerStore(tmp_path / "source")
    store.append(sent)
    imported(capsys, store.root, target)
    assert [without_place(each) for each in stored(target)] == sent
    assert store.end > 4 * FILE_SIZE


def test_log_files_age_from_their_newest_message(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(numbered(300))
    imported(capsys, store.root, target)
    files = list_store_files(target / "commitlog")
    newest = [
        max(m.store_timestamp for m in stored(target) if m.phy_offset // OUR_FILE_SIZE == n)
        for n in range(len(files))
    ]
    assert len(files) > 2
    assert [file.mtime_ms for file in files] == newest


def test_a_committed_message_names_its_half_at_the_new_place(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    half = store.append([message(0), message(1, topic=HALF)])[1]
    committed = message(
        2,
        queue_offset=1,
        sys_flag=TRANSACTION_COMMIT,
        prepared_transaction_offset=half.pos + ENTRY_HEAD_SIZE,
    )
    lost = dataclasses.replace(committed, queue_offset=2, prepared_transaction_offset=77)
    store.append([committed, lost])
    said = imported(capsys, store.root, target)
    found = stored(target)
    assert found[1].topic == HALF
    assert found[2].prepared_transaction_offset == found[1].phy_offset
    assert found[2].sys_flag == TRANSACTION_COMMIT
    assert found[3].prepared_transaction_offset == 0
    assert "1 committed messages name a half message" in said


def with_crc(each: Message) -> bytes:
    """As 5.3 with enabledAppendPropCRC: the checksum of all before it, its last digit first."""
    blank = dataclasses.replace(
        each, properties=each.properties + b"__CRC32#\x01" + b"0" * 10 + b"\x02"
    )
    raw = bytearray(encode_record(blank))
    crc = zlib.crc32(raw[:-20]) & 0x7FFFFFFF
    raw[-11:-1] = b"%010d" % crc
    raw[-11:-1] = raw[-11:-1][::-1]
    return bytes(raw)


def test_a_checksum_of_the_whole_record_is_right_again(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    place = ENTRY_HEAD_SIZE
    store.append_record(with_crc(message(0, phy_offset=place)), 1)
    said = imported(capsys, store.root, target)
    assert "1 messages are the same" in said
    (found,) = stored(target)
    assert encode_record(found) == with_crc(message(0))


# -- queues ------------------------------------------------------------------------------------


def test_queues_go_on_where_they_were(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Old files have expired: the first messages have offsets far from 0, one queue has none."""
    store = DledgerStore(tmp_path / "source", start=4096 * FILE_SIZE, first_index=300_000)
    store.append(numbered(50, first=100_000))
    store.queue("Expired", 3, 5_000_000)
    store.queue("T", 0, 100_025)
    said = imported(capsys, store.root, target)
    assert "Expired 3: no message any more, its next queue offset is 5000000" in said
    assert list_store_files(target / "commitlog")[0].start_offset == 4096 * FILE_SIZE
    ends = {("T", 0): 100_025, ("T", 1): 100_025, ("Expired", 3): 5_000_000}
    assert opened(target) == (ends, [])
    assert not (target / unfinished_import.QUEUES_NAME).exists()
    # And once more: the first start has written it down.
    assert opened(target) == (ends, [])


def test_a_queue_is_believed_wherever_its_log_begins(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Entries are 48 bytes longer than records: where a queue begins late in the source's first
    file, the target has to begin later for the same offset to have had room."""
    store = DledgerStore(tmp_path / "source", start=OUR_FILE_SIZE)
    store.append([message(0, topic="Fills", body=bytes(6000))])
    late = (store.end + ENTRY_HEAD_SIZE + len(encode_record(message(1)))) // 91 - 1
    store.append([message(1, queue_offset=late)])
    imported(capsys, store.root, target)
    assert opened(target) == ({("Fills", 0): 1, ("T", 0): late + 1}, [])


def test_what_is_out_of_turn_in_a_queue_is_named(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    heads = store.append([message(n, queue_offset=o) for n, o in enumerate((0, 1, 5, 6))])
    said = imported(capsys, store.root, target)
    place = f"position {heads[2].pos + ENTRY_HEAD_SIZE}: T 0: 5 after 1"
    assert place in said
    assert [each.queue_offset for each in stored(target)] == [0, 1, 5, 6]


def test_the_old_commit_log_comes_first(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A converted store: its log was closed with a blank, and DLedger began behind it."""
    root = tmp_path / "source"
    store = DledgerStore(root, start=2 * FILE_SIZE)
    old = PlainLog(root / "commitlog", FILE_SIZE)
    while old.end < FILE_SIZE + 3000:
        old.append(b"old %d" % len(old.records), store_timestamp=START_MS)
    old.put(old.end, (2 * FILE_SIZE - old.end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
    count = len(old.records)
    store.append([message(n, queue_offset=count + n) for n in range(20)])
    said = imported(capsys, root, target)
    assert f"{count} of them in the commit log from before DLedger" in said
    bodies = [b"old %d" % n for n in range(count)] + [b"body %d" % n for n in range(20)]
    assert [each.body for each in stored(target)] == bodies
    assert opened(target) == ({("T", 0): count + 20}, [])


# -- what a group has --------------------------------------------------------------------------


def others(nodes: list[DledgerStore]) -> list[object]:
    """All but the first one, as words of the command line."""
    return [word for node in nodes[1:] for word in ("--other", node.root)]


def tail_of(node: DledgerStore, count: int, term: int = 1) -> None:
    """More entries on this node alone."""
    first = len(node.heads)
    node.append([message(n, queue_offset=n) for n in range(first, first + count)], term)


def one_queue(count: int) -> list[Message]:
    return [message(n, queue_offset=n) for n in range(count)]


def test_what_no_majority_has_is_taken_unless_told_otherwise(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = group(tmp_path, one_queue(40))
    tail_of(nodes[0], 3)
    tail_of(nodes[1], 1)
    said = imported(capsys, nodes[0].root, target, *others(nodes))
    assert "a majority has them up to 40; 2 more are imported" in said
    assert len(stored(target)) == 43
    second = tmp_path / "second"
    said = imported(capsys, nodes[0].root, second, *others(nodes), "--majority-only")
    assert "a majority has them up to 40: 2 behind it are left out" in said
    assert [each.body for each in stored(second)] == [b"body %d" % n for n in range(41)]
    status, said = run(capsys, nodes[0].root, second, *others(nodes), "--majority-only", "--verify")
    assert (status, "41 messages are the same" in said) == (DONE, True)


def test_a_majority_is_one_of_all_members(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = group(tmp_path, one_queue(5), count=2)
    words = (nodes[0].root, target, "--majority-only", "--other", nodes[1].root)
    assert run(capsys, *words, "--dry-run")[0] == DONE
    said = refused(capsys, *words, "--members", 5)
    assert not target.exists()
    assert "2 of 5 nodes" in said


def test_a_tail_that_a_newer_leader_replaced_is_not_the_group_s(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old leader has more entries, of an older term: what was committed is elsewhere."""
    nodes = group(tmp_path, one_queue(10), count=2)
    tail_of(nodes[0], 9)
    tail_of(nodes[1], 1, term=2)
    assert "newer" in refused(capsys, nodes[0].root, target, "--other", nodes[1].root)
    imported(capsys, nodes[1].root, target, "--other", nodes[0].root)
    assert len(stored(target)) == 11


def test_nodes_of_different_groups_are_noticed(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = DledgerStore(tmp_path / "1"), DledgerStore(tmp_path / "2", node="n1")
    one.append(one_queue(5), term=1)
    other.append(one_queue(5), term=2)
    assert "no entry in common" in refused(capsys, other.root, target, "--other", one.root)


def test_committed_entries_that_are_gone_stop_the_import(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(10))
    store.checkpoint(committed=9)
    assert run(capsys, store.root, "--dry-run")[0] == DONE
    store.checkpoint(committed=10)
    said = refused(capsys, store.root, target)
    assert not target.exists()
    assert "entry 10 was committed" in said


# -- ends and damage ---------------------------------------------------------------------------


def test_the_rest_of_an_older_term_is_no_entry(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A leader of term 2 cut this node's log; what was behind still lies there, units too."""
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(20))
    store.end, store.next_index = heads[10].pos, 10
    store.append([message(99, queue_offset=10)], term=2)
    said = imported(capsys, store.root, target)
    assert [each.body for each in stored(target)] == [b"body %d" % n for n in range(10)] + [
        b"body 99"
    ]
    assert "behind the last entry" in said


def test_half_an_entry_at_the_end_is_no_damage(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(5))
    store.put(heads[4].pos + 20, bytes(heads[4].size - 20))
    store.clear_unit(4)
    said = imported(capsys, store.root, target)
    assert "nobody was told that it was stored" in said
    assert len(stored(target)) == 4


Harm = Callable[[DledgerStore, EntryHead], None]


def lengthen(store: DledgerStore, head: EntryHead) -> None:
    store.put(head.pos + 4, (5000).to_bytes(4, "big"))


HARMS: dict[str, Harm] = {
    "body": lambda store, head: store.flip(head.pos + ENTRY_HEAD_SIZE + 90),
    "record's place": lambda store, head: store.flip(head.pos + ENTRY_HEAD_SIZE + 35),
    "magic": lambda store, head: store.flip(head.pos + 3),
    "size": lengthen,
    "index": lambda store, head: store.flip(head.pos + 15),
    "lower term": lambda store, head: store.put(head.pos + 16, bytes(8)),
    "higher term": lambda store, head: store.flip(head.pos + 22),
    "higher index": lambda store, head: store.flip(head.pos + 14),
    "pos": lambda store, head: store.flip(head.pos + 31),
    "head and more": lambda store, head: store.put(head.pos, bytes(head.size)),
    "two entries": lambda store, head: store.put(head.pos + 5, bytes(head.size + 60)),
}


@pytest.mark.parametrize("name", HARMS)
@pytest.mark.parametrize("at", [0, 3, 19])
def test_damage_is_named_and_left_out_only_on_request(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], name: str, at: int
) -> None:
    """In the middle, and the last entry, of which only the index knows."""
    lost = [at, at + 1] if name == "two entries" and at < 19 else [at]
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(20))
    store.queue("T", 0, 20)
    HARMS[name](store, heads[at])
    said = refused(capsys, store.root, target, "--file-size", OUR_FILE_SIZE)
    assert not target.exists()
    assert f"position {heads[at].pos}, " in said
    said = imported(capsys, store.root, target, "--skip-damaged")
    kept = [each for each in stored(target) if each.topic == "T"]
    assert [each.body for each in kept] == [b"body %d" % n for n in range(20) if n not in lost]
    aside = sorted((target / import_run.DAMAGED_NAME).iterdir())
    assert int(aside[0].name) == heads[at].pos
    size = sum(heads[n].size for n in lost)
    assert sum(path.stat().st_size for path in aside) == size
    # No offset is given twice, and the others are where consumers expect them.
    assert opened(target)[0]["T", 0] == 20


@pytest.mark.parametrize("field", ["pos", "size", "term"])
@pytest.mark.parametrize("at", [0, 3, 19])
def test_a_damaged_index_costs_no_message(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], field: str, at: int
) -> None:
    """Java's recovery believes the data and writes the index anew. The last entry above all: it was
    taken for the rest of an older log, and left out with a word."""
    store = DledgerStore(tmp_path / "source")
    head = store.append(one_queue(20))[at]
    store.put_unit(dataclasses.replace(head, **{field: getattr(head, field) ^ 64}))
    said = imported(capsys, store.root, target)
    assert [without_place(each) for each in stored(target)] == one_queue(20)
    assert "behind the last entry" not in said


def test_the_first_entry_of_a_term_outlasts_a_damaged_index(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(20)[:10])
    head = store.append(one_queue(20)[10:], term=2)[0]
    store.put_unit(dataclasses.replace(head, pos=head.pos ^ 64))
    imported(capsys, store.root, target)
    assert [without_place(each) for each in stored(target)] == one_queue(20)


def test_a_head_that_swallows_the_next_entry_costs_its_own(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both sizes in it agree: only the index and the record say otherwise."""
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(20))
    size = heads[3].size + heads[4].size
    store.put(heads[3].pos + 4, size.to_bytes(4, "big"))
    store.put(heads[3].pos + 44, (size - ENTRY_HEAD_SIZE).to_bytes(4, "big"))
    imported(capsys, store.root, target, "--skip-damaged")
    kept = [each.body for each in stored(target) if each.topic == "T"]
    assert kept == [b"body %d" % n for n in range(20) if n != 3]


def test_damage_is_kept_aside_across_files(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(150))
    bad = next(n for n, head in enumerate(heads) if head.pos > FILE_SIZE - 700)
    start, end = heads[bad].pos, 2 * FILE_SIZE + 300
    files = sorted((store.directory / "data").iterdir())
    raw = bytearray(b"".join(path.read_bytes() for path in files))
    raw[start:end] = random.Random(7).randbytes(end - start)
    for number, path in enumerate(files):
        path.write_bytes(raw[number * FILE_SIZE : (number + 1) * FILE_SIZE])
    imported(capsys, store.root, target, "--skip-damaged")
    aside = sorted((target / import_run.DAMAGED_NAME).iterdir())
    kept = b"".join(path.read_bytes() for path in aside)
    assert int(aside[0].name) == start
    assert len(kept) >= end - start
    assert kept == raw[start : start + len(kept)]


def test_zeros_that_the_index_knows_are_searched_once(
    tmp_path: Path,
    target: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The machine stopped before the data was on disk, and after the index was."""
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(150))
    for head in heads[10:]:
        store.put(head.pos, bytes(head.size))
    searched = 0
    real = NodeFiles.heads_from

    def counted(files: NodeFiles, pos: int) -> Iterator[EntryHead]:
        nonlocal searched
        searched += 1
        return real(files, pos)

    monkeypatch.setattr(NodeFiles, "heads_from", counted)
    status, said = run(capsys, store.root, target, "--dry-run")
    assert (status, "DAMAGED: 140" in said) == (DONE, True)
    assert searched == 1


def test_one_node_twice_is_no_majority(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(3))
    shutil.copytree(store.root, tmp_path / "copy")
    for words in ((), ("--majority-only",)):
        said = refused(capsys, store.root, target, "--other", tmp_path / "copy", *words)
        assert "it is of node n0" in said
    assert not target.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("--members", 0),
        ("--members", -5),
        ("--members", "٣"),
        ("--file-size", 125),
        ("--file-size", -1),
        ("--file-size", 2**31),
    ],
)
def test_numbers_that_cannot_be_are_refused(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], words: tuple[object, ...]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(3))
    with pytest.raises(SystemExit):
        run(capsys, store.root, target, *words)
    assert not target.exists()
    assert "expected" in capsys.readouterr().err


def test_names_that_nobody_gave_a_topic(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of files and of messages: one ended the import when all but the queues was written."""
    store = DledgerStore(tmp_path / "source")
    store.append([message(0, topic="T\n\x1b[31m"), message(1)])
    for name in (b"\xff\xfe", b"T\n: 5"):
        store.queue(os.fsdecode(name), 0, 5)
    store.queue("U", 1, 5)
    (store.root / "consumequeue" / "U" / "1").rename(store.root / "consumequeue" / "U" / ("9" * 99))
    said = imported(capsys, store.root, target)
    assert "\x1b" not in said
    assert "T\\n\\x1b[31m 0: 1 messages" in said
    assert said.count("not the queues of a topic") == 2
    assert opened(target)[0]["T", 0] == 1


def test_a_client_s_words_are_no_mark(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    sent = [message(0), message(1, queue_offset=1, body=b"LOST RANGE"), message(2, queue_offset=2)]
    store.append(sent)
    assert "3 messages are the same" in imported(capsys, store.root, target)
    assert [without_place(each) for each in stored(target)] == sent


def test_a_target_that_has_more_is_said(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(3))
    shutil.copytree(store.root, tmp_path / "before")
    assert "has more" not in imported(capsys, store.root, target)
    store.append(one_queue(5)[3:])
    shutil.rmtree(target)
    imported(capsys, store.root, target)
    status, said = run(capsys, tmp_path / "before", target, "--verify")
    assert (status, "3 messages are the same" in said) == (DONE, True)
    assert f"from {stored(target)[3].phy_offset} on, {target} has more" in said


@pytest.mark.parametrize("name", HARMS)
@pytest.mark.parametrize("at", [0, 3, 18])
def test_what_another_node_has_whole_is_taken_from_there(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str], name: str, at: int
) -> None:
    sent = [message(n, queue_offset=n, body=bytes([n]) * 700) for n in range(20)]
    nodes = group(tmp_path, sent)
    HARMS[name](nodes[0], nodes[0].heads[at])
    said = imported(capsys, nodes[0].root, target, *others(nodes))
    assert [without_place(each) for each in stored(target)] == sent
    assert "taken from other nodes: " in said


def test_an_entry_of_another_term_heals_nothing(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The old leader has other messages at the same places, which were never committed."""
    nodes = group(tmp_path, one_queue(10), count=2)
    tail_of(nodes[1], 3, term=1)
    nodes[0].append([message(50 + n, queue_offset=10 + n) for n in range(3)], term=2)
    assert [head.pos for head in nodes[0].heads] == [head.pos for head in nodes[1].heads]
    HARMS["body"](nodes[0], nodes[0].heads[11])
    said = refused(capsys, nodes[0].root, target, "--other", nodes[1].root)
    assert not target.exists()
    assert f"position {nodes[0].heads[11].pos}, " in said


def test_what_two_nodes_have_damaged_is_taken_from_the_third(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = group(tmp_path, one_queue(20))
    for node in nodes[:2]:
        HARMS["body"](node, node.heads[7])
    imported(capsys, nodes[0].root, target, *others(nodes))
    assert [each.body for each in stored(target)] == [b"body %d" % n for n in range(20)]


def test_rot_that_no_checksum_covers_shows_between_nodes(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of three nodes the most are right; of two nobody knows which one."""
    nodes = group(tmp_path, one_queue(20))
    head = nodes[0].heads[7]
    nodes[0].flip(head.pos + head.size - 3)
    words = ("--other", nodes[1].root)
    said = refused(capsys, nodes[0].root, target, *words)
    assert "the nodes have different bytes" in said
    assert f"position {head.pos}, " in said
    imported(capsys, nodes[0].root, target, *words, "--other", nodes[2].root)
    assert [without_place(each) for each in stored(target)] == one_queue(20)


def test_damage_in_the_old_log_is_named(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "source"
    store = DledgerStore(root, start=FILE_SIZE)
    old = PlainLog(root / "commitlog", FILE_SIZE)
    places = [old.append(b"old %d" % n, store_timestamp=START_MS) for n in range(20)]
    old.put(old.end, (FILE_SIZE - old.end).to_bytes(4, "big") + b"\xcb\xd4\x31\x94")
    store.append([message(0, queue_offset=20)])
    old.put(places[5] + 89, b"X")
    said = refused(capsys, root, target, "--file-size", OUR_FILE_SIZE)
    assert f"position {places[5]}, {places[6] - places[5]} bytes" in said
    imported(capsys, root, target, "--skip-damaged")
    kept = [each.body for each in stored(target) if each.topic == "T"]
    assert kept == [b"old %d" % n for n in range(20) if n != 5] + [b"body 0"]
    assert opened(target)[0]["T", 0] == 21


def test_a_message_that_looks_like_an_entry_is_none(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client's body, found while an entry is looked for behind damage."""
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(3))
    place = store.end + ENTRY_HEAD_SIZE + 88
    inner = DledgerStore(tmp_path / "inner", start=place, first_index=4)
    forged = inner.append([message(66, queue_offset=50)], term=1)[0]
    data = next((inner.directory / "data").iterdir()).read_bytes()[place : place + forged.size]
    (bad,) = store.append([message(3, queue_offset=3, body=data)])
    store.append([message(4, queue_offset=4)])
    store.flip(bad.pos + 3)
    said = imported(capsys, store.root, target, "--skip-damaged")
    kept = [each.body for each in stored(target) if each.topic == "T"]
    assert kept == [b"body 0", b"body 1", b"body 2", b"body 4"]
    assert "left out: 1\n" in said, "one damage, from the entry to the next one"


def spoil(store: DledgerStore, rng: random.Random) -> None:
    """One to four places of data and index: a bit, a run of zeros, other bytes, bytes from
    elsewhere."""
    files = [*(store.directory / "data").iterdir(), *(store.directory / "index").iterdir()]
    for _ in range(rng.randint(1, 4)):
        path = rng.choice(sorted(files))
        raw = bytearray(path.read_bytes())
        at, size = rng.randrange(len(raw.rstrip(b"\0")) or 1), rng.choice((1, 8, 48, 300))
        size = min(size, len(raw) - at)
        match rng.randrange(4):
            case 0:
                raw[at] ^= 1 << rng.randrange(8)
            case 1:
                raw[at : at + size] = bytes(size)
            case 2:
                raw[at : at + size] = rng.randbytes(size)
            case 3:
                start = rng.randrange(len(raw) - size)
                raw[at : at + size] = raw[start : start + size]
        path.write_bytes(raw)


def fuzz(tmp_path: Path, capsys: pytest.CaptureFixture[str], seeds: range) -> tuple[int, int]:
    """How many imports were done at once, and how many only with damage left out.

    With a whole node beside it an import gives the messages that there were, or none. Alone it says
    nothing that a checksum contradicts: each body is one that was sent, in order, and what is not
    there was named.
    """
    done = left_out = 0
    for seed in seeds:
        rng = random.Random(seed)
        sizes = rng.choices((1, 90, 900), k=60)
        sent = [message(n, queue_offset=n, body=rng.randbytes(s)) for n, s in enumerate(sizes)]
        nodes = group(tmp_path / str(seed), sent, count=2)
        nodes[0].checkpoint(committed=59)
        spoil(nodes[0], rng)
        source, target = nodes[0].root, tmp_path / f"{seed}-target"
        status, said = run(capsys, source, target, "--other", nodes[1].root)
        if status == DONE:
            done += 1
            assert [without_place(each) for each in stored(target)] == sent, seed
        else:
            assert not (target / "commitlog").exists(), seed
        alone = tmp_path / f"{seed}-alone"
        status, said = run(capsys, source, alone, "--skip-damaged")
        if status == DONE:
            bodies = [each.body for each in stored(alone) if not each.body.startswith(b"LOST")]
            rest = iter([each.body for each in sent])
            assert all(body in rest for body in bodies), seed
            if len(bodies) < len(sent):
                left_out += 1
                assert "damaged, to be left out" in said, seed
    return done, left_out


@pytest.fixture
def without_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on disk is other tests' matter."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.mark.usefixtures("without_fsync")
def test_a_spoiled_source_is_healed_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, left_out = fuzz(tmp_path, capsys, range(25))
    assert done > 10
    assert left_out > 3


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("without_fsync")
def test_many_spoiled_sources_are_healed_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, left_out = fuzz(tmp_path, capsys, range(1_000, 1_500))
    assert done > 200
    assert left_out > 60


# -- what an import refuses, and what a broker refuses ------------------------------------------


def test_a_running_broker_s_store_is_neither_read_nor_written(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = group(tmp_path, one_queue(3), count=2)
    words = (nodes[0].root, target, "--other", nodes[1].root)
    for locked in (nodes[0].root, nodes[1].root, target):
        with StoreLock(locked):
            assert "MQ already started" in refused(capsys, *words)
    assert run(capsys, *words)[0] == DONE


def test_a_target_with_anything_in_it_is_refused(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(one_queue(3))
    (target / "commitlog").mkdir(parents=True)
    assert "not empty (commitlog)" in refused(capsys, store.root, target)
    for inside in (store.root, store.root / "config", tmp_path):
        assert "one directory" in refused(capsys, store.root, inside)
    imported(capsys, store.root, tmp_path / "new")
    assert run(capsys, store.root, tmp_path / "new")[0] == REFUSED


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda store: None, "there is no message"),
        (lambda store: (store.directory / "data").rename(store.root / "x"), "not the root"),
        (lambda store: (store.root / "dledger-n9" / "data").mkdir(parents=True), "n0, dledger-n9"),
        (lambda store: (store.directory / "index").rename(store.root / "x"), "nobody can tell"),
        (lambda store: (store.directory / "checkpoint").write_text("x"), "not a checkpoint"),
        (lambda store: store.put(3 * FILE_SIZE, b"x"), "missing"),
        (lambda store: (store.root / "commitlog" / ("1" * 20)).parent.mkdir(), "no message"),
    ],
)
def test_a_source_that_is_none_is_refused(
    tmp_path: Path,
    target: Path,
    capsys: pytest.CaptureFixture[str],
    spoil: Callable[[DledgerStore], object],
    said: str,
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.put(0, bytes(8))
    store.clear_unit(0)
    spoil(store)
    text = refused(capsys, store.root, target)
    assert not target.exists()
    assert said in text


def test_old_log_and_entries_belong_together(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source", start=2 * FILE_SIZE)
    store.append(one_queue(3))
    PlainLog(store.root / "commitlog", FILE_SIZE)
    assert "in between are missing" in refused(capsys, store.root, target)


def test_a_record_larger_than_a_file_is_refused(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append([message(0, body=bytes(5000))])
    assert "larger --file-size" in refused(capsys, store.root, target, "--file-size", 4096)


def test_a_look_writes_nothing(
    golden: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(capsys, golden / "dl1", target, "--dry-run")
    assert (status, target.exists()) == (DONE, False)
    assert "TDl 1: 10 messages, queue offsets 0 to 9" in said


def test_a_comparison_finds_what_differs(
    tmp_path: Path, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = DledgerStore(tmp_path / "source")
    heads = store.append(one_queue(10))
    imported(capsys, store.root, target)
    path = target / "commitlog" / ("0" * 20)
    good = path.read_bytes()
    found = stored(target)
    last = found[9].phy_offset
    changes = {
        good.replace(
            b"K00004", b"K00005"
        ): f"position {heads[4].pos + ENTRY_HEAD_SIZE}: the message differs",
        good[:last] + bytes(len(good) - last): "the message is missing",
        good.replace(b"body 7", b"body 8"): "bodyCRC",
    }
    for changed, text in changes.items():
        path.write_bytes(changed)
        assert text in refused(capsys, store.root, target, "--verify")
    path.write_bytes(good)
    assert run(capsys, store.root, target, "--verify")[0] == DONE


# -- kills -------------------------------------------------------------------------------------


class Killed(BaseException):
    """Nothing runs after it, as after SIGKILL."""


STEPS = [
    (import_run, "mark_unfinished"),
    (import_run, "_remove_remains"),
    (import_run, "write_atomic"),
    (target_log, "create_allocated"),
    (target_log, "sync_directory"),
    (import_run, "write_queue_ends"),
    (import_run, "sync_directory"),
    (import_run, "mark_finished"),
]


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("step", range(len(STEPS)), ids=[name for _, name in STEPS])
def test_an_import_that_ends_early_is_begun_anew_and_starts_no_broker(
    tmp_path: Path,
    target: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    before: bool,
) -> None:
    store = DledgerStore(tmp_path / "source")
    store.append(numbered(200))
    (store.root / "config" / "topics.json").write_text("{}")
    module, name = STEPS[step]
    real = getattr(module, name)

    def dies(*arguments: object, **named: object) -> None:
        if not before:
            real(*arguments, **named)
        raise Killed

    words = (store.root, target, "--file-size", OUR_FILE_SIZE)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, dies)
        patch.setattr(target_log.TargetLog, "close", lambda log: None)
        with pytest.raises(Killed):
            run(capsys, *words)
    begun = (step, before) != (0, True)
    complete = (step, before) == (len(STEPS) - 1, False)
    if begun and not complete:
        with pytest.raises(StoreError, match="--again"):
            opened(target)
        if (target / "commitlog").exists():
            assert any("not finished" in error for error in check_store(target).errors)
        assert "--again" in refused(capsys, *words)
        assert run(capsys, *words, "--again")[0] == DONE
    elif not begun:
        assert run(capsys, *words)[0] == DONE
    assert [without_place(each) for each in stored(target)] == numbered(200)
    assert opened(target) == ({("T", 0): 100, ("T", 1): 100}, [])
    assert run(capsys, *words, "--again")[0] == REFUSED
