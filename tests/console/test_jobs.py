"""Jobs: progress, stop, failures, owners, bounds."""

from __future__ import annotations

import threading

import pytest

from console.jobs import KEPT, MOST_OF_ONE, MOST_RUNNING, Job, Jobs
from console.page import ConsoleError
from tests.support.deadline import wait_until
from tools.errors import AdminError


def ended(job: Job) -> Job:
    wait_until(lambda: job.state != "running")
    return job


def test_a_job_ends_by_itself_or_between_two_steps() -> None:
    jobs = Jobs(lambda: 7)
    steps = threading.Semaphore(0)

    def work(job: Job) -> None:
        while not job.stop.is_set():
            assert steps.acquire(timeout=20)
            job.done += 1

    assert ended(jobs.start("short", "alice", lambda job: job.say("did"))).state == "done"
    job = jobs.start("long", "alice", work)
    steps.release()
    wait_until(lambda: job.done == 1)
    job.stop.set()
    steps.release()
    assert ended(job).state == "stopped"
    assert (job.done, job.ended_ms) == (2, 7)
    assert [other.title for other in jobs.of("alice")] == ["long", "short"]


def test_a_failure_is_said(caplog: pytest.LogCaptureFixture) -> None:
    def fail(error: Exception) -> None:
        raise error

    jobs = Jobs(lambda: 0)
    for error, said in ((AdminError("no right"), "no right"), (KeyError("x"), "itself failed")):
        job = ended(jobs.start("t", None, lambda job, error=error: fail(error)))  # type: ignore[misc]
        assert job.state == "failed"
        assert said in job.lines[-1]
    assert "KeyError" in caplog.text


def test_nobody_sees_the_job_of_another() -> None:
    jobs = Jobs(lambda: 0)
    job = jobs.start("t", "alice", lambda job: None)
    assert jobs.find(job.id, "alice") is job
    for job_id, owner in ((job.id, "bob"), (job.id, None), ("0", "alice")):
        with pytest.raises(ConsoleError):
            jobs.find(job_id, owner)
    assert jobs.of("bob") == []


def test_bounds() -> None:
    jobs = Jobs(lambda: 0)
    gate = threading.Event()

    def start(owner: str) -> Job:
        return jobs.start("r", owner, lambda _job: gate.wait(20) and None)

    running = [start("alice") for _ in range(MOST_OF_ONE)]
    with pytest.raises(ConsoleError, match=f"^{MOST_OF_ONE} of your jobs run already"):
        start("alice")
    running += [start("bob") for _ in range(MOST_RUNNING - MOST_OF_ONE)]
    with pytest.raises(ConsoleError, match=f"^{MOST_RUNNING} jobs run already"):
        start("carol")
    jobs.stop_all()
    gate.set()
    assert {ended(job).state for job in running} == {"stopped"}
    for _ in range(KEPT + 5):
        ended(jobs.start("t", 1, lambda job: None))
    assert len(jobs.of(1)) == KEPT


def test_a_job_that_cannot_start_is_not_running(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    jobs = Jobs(lambda: 1)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        for _ in range(MOST_RUNNING):
            with pytest.raises(ConsoleError, match="can't start"):
                jobs.start("t", None, lambda _job: None)
    assert ended(jobs.start("t", None, lambda _job: None)).state == "done"
