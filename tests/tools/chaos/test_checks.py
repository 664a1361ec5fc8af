"""tools.chaos.checks: each check finds its lie, and nothing in a true story."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from store.message import Message
from store.message_codec import encode_record
from tests.support.plain_log import HOST
from tools.chaos import checks
from tools.chaos.ack_log import Ack, make_body, read_body
from tools.chaos.disk_faults import DiskLosses, PowerCut
from tools.chaos.frame_client import Pulled
from tools.chaos.queue_reading import GAP, append_pulled, gaps
from tools.message_decoder import decode_messages

SENT = {0: 6, 1: 6}
TRUE_QUEUES = {
    queue: [
        make_body(producer, sequence, 60)
        for sequence in (queue, queue + 2, queue + 4)
        for producer in (0, 1)
    ]
    for queue in (0, 1)
}
TRUE_ACKS = [
    Ack(*message, queue, offset, 0)
    for queue, bodies in TRUE_QUEUES.items()
    for offset, body in enumerate(bodies)
    if (message := read_body(body)) is not None
]
Queues = dict[int, list[bytes]]


def copy() -> Queues:
    return {queue: list(bodies) for queue, bodies in TRUE_QUEUES.items()}


def all_checks(queues: Queues, acks: list[Ack]) -> dict[str, list[str]]:
    found = {
        "lost": checks.lost(acks, queues),
        "places": checks.places_given_twice(acks),
        "invented": checks.invented(queues, SENT),
        "repeated": checks.repeated(queues),
        "order": checks.out_of_order(queues),
        "consumed": checks.consumed_otherwise(TRUE_QUEUES, queues),
    }
    return {name: texts for name, texts in found.items() if texts}


def test_a_true_story() -> None:
    assert all_checks(copy(), TRUE_ACKS) == {}


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    assert all_checks(copy(), TRUE_ACKS[:-3]) == {}
    queues = copy()
    queues[1].pop()
    assert checks.lost(TRUE_ACKS[:-1], queues) == []


def cut_the_end(queues: Queues) -> None:
    queues[0].pop()


def swap_two_of_one_producer(queues: Queues) -> None:
    queues[0][0], queues[0][2] = queues[0][2], queues[0][0]


def store_one_again(queues: Queues) -> None:
    queues[1].append(queues[1][0])


def flip_a_bit(queues: Queues) -> None:
    body = bytearray(queues[1][2])
    body[-1] ^= 1
    queues[1][2] = bytes(body)


def add_one_that_nobody_sent(queues: Queues) -> None:
    queues[0].append(make_body(1, 6, 60))


def put_another_producers_there(queues: Queues) -> None:
    queues[0].append(make_body(7, 0, 60))


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (cut_the_end, {"lost", "consumed"}),
        (swap_two_of_one_producer, {"lost", "order", "consumed"}),
        (store_one_again, {"repeated", "order"}),
        (flip_a_bit, {"lost", "invented", "consumed"}),
        (add_one_that_nobody_sent, {"invented"}),
        (put_another_producers_there, {"invented"}),
    ],
)
def test_each_lie_is_found(lie: Callable[[Queues], None], found: set[str]) -> None:
    queues = copy()
    lie(queues)
    assert all_checks(queues, TRUE_ACKS).keys() == found


def test_a_place_given_twice() -> None:
    acks = [*TRUE_ACKS, Ack(0, 5, 0, 0, 0)]
    assert checks.places_given_twice(acks) == ["queue 0 offset 0 was given to 2 messages"]


def test_a_gap_is_a_loss_and_nothing_else() -> None:
    queues = copy()
    queues[0][2] = GAP
    assert all_checks(queues, TRUE_ACKS).keys() == {"lost"}
    assert gaps(queues) == ["queue 0 offset 2 of 6 is stepped over"]
    assert checks.consumed_otherwise(queues, TRUE_QUEUES) == []


def pulled(after: int, *offsets: int) -> Pulled:
    raws = [
        encode_record(
            Message(
                topic="T",
                queue_id=0,
                queue_offset=n,
                body=b"%d" % n,
                born_host=HOST,
                store_host=HOST,
            )
        )
        for n in offsets
    ]
    return Pulled(0, after, list(decode_messages(b"".join(raws))))


def test_a_pull_that_steps_over_damage_leaves_gaps() -> None:
    bodies = [b"0"]
    assert append_pulled(bodies, pulled(5, 1, 3))
    assert bodies == [b"0", b"1", GAP, b"3", GAP]
    assert not append_pulled(bodies, pulled(5))
    assert not append_pulled(bodies, pulled(3, 2))
    assert len(bodies) == 5


def test_what_a_power_cut_may_cost() -> None:
    """Answers of the last seconds before it with ASYNC_FLUSH, those that promised no disk with
    SYNC_FLUSH; nothing older, nothing answered after it."""
    ages = {"young": 99.0, "old": 90.0, "later": 101.0}
    acks = [Ack(0, 0, 0, 0, code, 0.0, at) for at in ages.values() for code in (0, 10)]
    promised_no_disk = {(99.0, 10), (90.0, 10)}
    for takes_all, lost in ((True, {(99.0, 0), *promised_no_disk}), (False, promised_no_disk)):
        losses = DiskLosses(cuts=[PowerCut(100.0, takes_all=takes_all)])
        kept = losses.without_lost(acks, lambda _ack: True)
        gone = {(ack.answered_s, ack.code) for ack in acks if ack not in kept}
        assert gone == lost
        assert sum(losses.codes.values()) == len(lost)
        assert losses.without_lost(acks, lambda _ack: False) == acks


def test_only_send_ok_counts_for_a_replica() -> None:
    acks = [Ack(0, 0, 0, 99, 11), Ack(0, 2, 0, 98, 0)]
    assert len(checks.lost(acks, TRUE_QUEUES)) == 2
    (text,) = checks.lost(acks, TRUE_QUEUES, only_ok=True)
    assert "message 2 of producer 0" in text


def test_logs() -> None:
    assert checks.no_prefix(b"abcd", b"abc") == checks.no_prefix(b"abcd", b"abcd") == []
    assert checks.no_prefix(b"abc", b"abcd") == [
        "the slave's log is longer: 4 bytes, the master's 3"
    ]
    assert checks.no_prefix(b"abcd", b"abXd") == ["the logs part at byte 2 of 4 and 4"]


def test_log_files(tmp_path: Path) -> None:
    def files(name: str, *contents: bytes) -> list[Path]:
        directory = tmp_path / name
        directory.mkdir()
        for number, content in enumerate(contents):
            (directory / f"{number:020d}").write_bytes(content)
        return sorted(directory.iterdir())

    master = files("master", b"abc\0", b"def\0", b"gh\0\0")
    found = {
        name: checks.no_prefix_of_files(master, files(name, *contents))
        for name, contents in {
            "same": (b"abc\0", b"def\0", b"gh\0\0"),
            "behind": (b"abc\0", b"d\0\0\0", b"\0\0\0\0"),
            "hole": (b"abc\0", b"d\0\0\0", b"gh\0\0"),
            "parted": (b"abc\0", b"dXf\0"),
            "longer": (b"abc\0", b"def\0", b"gh\0\0", b"i"),
        }.items()
    }
    assert found["same"] == found["behind"] == []
    assert found["hole"] == ["the logs part at byte 1 of 4 and 4"]
    assert found["parted"] == ["the logs part at byte 1 of 4 and 3"]
    assert found["longer"] == [f"the slave has {3:020d}, the master has not"]


def test_a_body_is_whole_or_none() -> None:
    body = make_body(3, 77, 50)
    assert len(body) == 50
    assert read_body(body) == (3, 77)
    for at in range(len(body)):
        assert read_body(body[:at]) is None or at == len(body)
        flipped = body[:at] + bytes([body[at] ^ 4]) + body[at + 1 :]
        assert read_body(flipped) != (3, 77)


def test_long_lists_are_shortened() -> None:
    assert checks.shortened(["a"] * 7) == ["a"] * 5 + ["... and 2 more of this kind"]
