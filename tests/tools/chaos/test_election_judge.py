"""The judge of groups with controllers: each lie of a group is found, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.chaos.ack_log import make_body
from tools.chaos.election_judge import (
    different_epochs,
    different_logs,
    epoch_at,
    judge_history,
    masters_of_epochs,
    measure_gaps,
    rate_of,
)
from tools.chaos.election_options import FaultOutcome
from tools.chaos.election_schedule import ElectionFault
from tools.chaos.history import Append, History

ONE, TWO = ("127.0.0.11", 1), ("127.0.0.12", 2)
SIZE = 60


def append(sequence: int, offset: int, *, code: int = 0, peer: tuple[str, int] = ONE) -> Append:
    """To queue 0, answered at second `sequence`."""
    found = Append(1, sequence, 0, sequence - 0.1, peer)
    found.return_s, found.code, found.queue_offset = float(sequence), code, offset
    found.phy_offset = 100 * offset
    return found


def history_of(*appends: Append) -> History:
    history = History()
    for each in appends:
        history.sends(each)
    return history


def body(sequence: int) -> bytes:
    return make_body(1, sequence, SIZE)


WHOLE = {0: [body(0), body(1), body(2)]}


def test_a_run_that_held() -> None:
    history = history_of(append(0, 0), append(1, 1, code=12), append(2, 2))
    assert judge_history(history, {(0, 1): body(1)}, WHOLE) == []


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ({0: [body(0), body(1)]}, "lost: message 2 of producer 1, answered 0"),
        ({0: [body(0), body(2), body(2)]}, "lost: message 1 of producer 1, answered 0"),
        ({0: [*WHOLE[0], body(0)]}, "message 0 of producer 1 is stored 2 times"),
        ({0: [*WHOLE[0], body(7)]}, "invented: queue 0 offset 3"),
        ({0: [*WHOLE[0], b"x" + body(1)[1:]]}, "damaged: queue 0 offset 3"),
        ({0: [body(1), body(0), body(2)]}, "out of order: queue 0 offset 1 holds message 0"),
    ],
)
def test_what_is_not_there_as_it_was_answered(queues: dict[int, list[bytes]], words: str) -> None:
    history = history_of(append(0, 0), append(1, 1), append(2, 2))
    assert any(text.startswith(words) for text in judge_history(history, {}, queues))


def test_a_place_that_was_given_twice() -> None:
    found = judge_history(history_of(append(0, 0), append(1, 0)), {}, {0: [body(0), body(1)]})
    assert "queue 0 offset 0 was given to 2 messages" in found


@pytest.mark.parametrize(
    ("seen", "now"), [({(0, 1): body(0)}, "b'1:0000000001:"), ({(0, 3): body(0)}, "nothing is now")]
)
def test_a_record_that_was_read_and_is_not_there(
    seen: dict[tuple[int, int], bytes], now: str
) -> None:
    (text,) = judge_history(history_of(append(2, 2)), seen, {0: WHOLE[0]})[:1]
    assert text.startswith("read: b'1:0000000000:")
    assert now in text


EPOCHS = [(3, 0), (5, 200), (6, 200)]


def test_the_epoch_of_a_byte() -> None:
    found = [epoch_at(EPOCHS, at) for at in (0, 199, 200, 5000)]
    assert found == [3, 3, 6, 6]
    assert epoch_at([(3, 50)], 49) == -1


def test_two_masters_of_one_epoch_that_both_answered() -> None:
    alone = [append(0, 0), append(1, 1), append(2, 2, peer=TWO)]
    assert masters_of_epochs(alone, EPOCHS) == []
    (text,) = masters_of_epochs([*alone, append(3, 3)], EPOCHS)
    assert text == f"epoch 6: 2 masters answered SEND_OK: {[ONE, TWO]}"


def test_epochs_that_differ() -> None:
    assert different_epochs({"a": EPOCHS, "b": list(EPOCHS)}) == []
    (text,) = different_epochs({"a": EPOCHS, "b": EPOCHS[:2]})
    assert text == f"the epochs of a are {EPOCHS}, those of b {EPOCHS[:2]}"


@pytest.mark.parametrize("other", [b"abd", b"ab", b"abcd"])
def test_logs_that_differ(tmp_path: Path, other: bytes) -> None:
    for name, data in (("a", b"abc"), ("b", b"abc"), ("c", other)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "00").write_bytes(data.ljust(8, b"\0"))
        (tmp_path / name / "08").write_bytes(bytes(8 if name == "b" else 0))
    files = {name: sorted((tmp_path / name).iterdir()) for name in "abc"}
    assert different_logs({name: files[name] for name in "ab"}) == []
    assert all(text.startswith(("c against a", "a against c")) for text in different_logs(files))
    assert different_logs(files)


def test_gaps_and_elections() -> None:
    """Answers at seconds 0 to 4 in epoch 3, then at 8 and from 8.5 on in epoch 6; a pause of 2 s
    follows when what was killed comes back."""
    at = [0, 1, 2, 3, 4, 8, 8.5, 9, 11, 11.5, 12]
    acknowledged = []
    for number, answered_s in enumerate(at):
        each = append(number, 0)
        each.return_s = 100.0 + answered_s
        each.phy_offset = 0 if answered_s <= 4 else 300
        acknowledged.append(each)
    kill = FaultOutcome(ElectionFault.KILL_MASTER, "", "", was_whole=True, begun_s=4.2)
    kill.undone_s, kill.over_s = 8.7, 11.2
    stop = FaultOutcome(ElectionFault.STOP_SLAVE, "", "", was_whole=True, begun_s=11.2)
    stop.undone_s, stop.over_s = 11.7, 12
    measure_gaps([kill, stop], acknowledged, EPOCHS, 100.0)
    assert (kill.gap_s, kill.later_gap_s, kill.has_elected) == (4.0, 2.0, True)
    assert (stop.gap_s, stop.later_gap_s, stop.has_elected) == (0.5, 0.0, False)


def test_the_rate_leaves_pauses_out() -> None:
    acknowledged = [append(0, 0) for _ in range(5)]
    for each, at in zip(acknowledged, (1.0, 1.1, 1.2, 9.0, 9.1), strict=True):
        each.return_s = at
    assert rate_of(acknowledged) == pytest.approx(5 / 0.3)
    assert rate_of([]) == 0.0
