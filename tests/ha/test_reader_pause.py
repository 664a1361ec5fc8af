"""ReaderPause: a reader rests for its connection's writer, and goes on with what it is given."""

from __future__ import annotations

import threading

from ha.reader_pause import ReaderPause, ReadState
from tests.support.deadline import wait_until

EARLY, LATE = ReadState(b"\1", 5), ReadState(b"\2\3", 9)


class _Calls:
    """Calls on a thread of their own, one after the other."""

    def __init__(self) -> None:
        self.results: list[ReadState | None] = []

    def begin(self, pause: ReaderPause) -> threading.Thread:
        return self._run(lambda: pause.begin(60_000))

    def rest(self, pause: ReaderPause) -> threading.Thread:
        return self._run(lambda: pause.rest(EARLY))

    def _run(self, function: object) -> threading.Thread:
        assert callable(function)
        thread = threading.Thread(target=lambda: self.results.append(function()), daemon=True)
        thread.start()
        return thread


def test_the_reader_rests_until_it_is_given_where_to_go_on() -> None:
    pause, writer, reader = ReaderPause(), _Calls(), _Calls()
    begins = writer.begin(pause)
    wait_until(lambda: pause.is_wanted)
    rests = reader.rest(pause)
    begins.join(5)
    assert (writer.results, reader.results) == ([EARLY], [])
    pause.end(LATE)
    rests.join(5)
    assert reader.results == [LATE]
    pause.close()


def test_without_a_new_state_it_goes_on_where_it_was() -> None:
    pause, writer, reader = ReaderPause(), _Calls(), _Calls()
    begins = writer.begin(pause)
    wait_until(lambda: pause.is_wanted)
    rests = reader.rest(pause)
    begins.join(5)
    pause.end()
    rests.join(5)
    assert reader.results == [EARLY]
    pause.close()


def test_a_reader_that_comes_too_late_goes_on_at_once() -> None:
    pause, reader = ReaderPause(), _Calls()
    assert pause.begin(0) is None
    pause.end()
    reader.rest(pause).join(5)
    assert reader.results == [EARLY]
    pause.close()


def test_a_reader_that_has_ended_is_not_waited_for() -> None:
    pause, writer = ReaderPause(), _Calls()
    begins = writer.begin(pause)
    wait_until(lambda: pause.is_wanted)
    pause.close()
    begins.join(5)
    assert writer.results == [None]
    assert pause.begin(60_000) is None
