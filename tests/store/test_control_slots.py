"""Why the store refuses writes, as other processes read it."""

from __future__ import annotations

import threading

from ipc.control_page import PAGE_SIZE
from store.control_slots import REFUSAL_VERSION, RUNNING_FLAGS, refuse_writes, write_refusal
from tests.support.shared_memory import fresh_page


def test_the_reason_of_a_refusal_is_read_by_other_processes() -> None:
    page = fresh_page()
    assert write_refusal(page) == ""
    refuse_writes(page, 16, "/s/1: no room für 8 bytes")
    assert write_refusal(page) == "/s/1: no room für 8 bytes"
    assert page.counters[RUNNING_FLAGS] == 16
    refuse_writes(page, 0, "")
    assert write_refusal(page) == ""


def test_a_reason_is_cut_to_the_page() -> None:
    page = fresh_page()
    refuse_writes(page, 16, "ü" * PAGE_SIZE)
    assert write_refusal(page) == "ü" * ((4096 - 2050) // 2)


def test_a_writer_that_was_killed_while_it_wrote() -> None:
    """Half a reason is not shown; its successor's is."""
    page = fresh_page()
    refuse_writes(page, 16, "no room")
    page.counters[REFUSAL_VERSION] += 1
    assert write_refusal(page) == "see store.log"
    refuse_writes(page, 16, "still none")
    assert write_refusal(page) == "still none"


def test_a_reason_is_never_read_torn() -> None:
    page, texts = fresh_page(), ("a" * 2000, "b" * 2000)
    end = threading.Event()

    def write() -> None:
        while not end.is_set():
            for text in texts:
                refuse_writes(page, 16, text)

    writer = threading.Thread(target=write)
    refuse_writes(page, 16, texts[0])
    writer.start()
    try:
        seen = {write_refusal(page) for _ in range(20_000)}
    finally:
        end.set()
        writer.join()
    assert seen <= {*texts, "see store.log"}
