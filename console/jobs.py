"""Jobs: what takes longer than a request: resending many, verifying a replica. Progress and stop.

A job is one thread; at most four run at once, two of one account, and the last 50 are remembered.
What a job does is stopped between two of its steps, never in the middle of one. Must not know what
a job does.

Tested by tests/console/test_jobs.py.
"""

from __future__ import annotations

import logging
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from console.errors import ConsoleError
from console.lanes import ANSWER_ERRORS

log = logging.getLogger(__name__)

MOST_RUNNING: Final = 4
MOST_OF_ONE: Final = 2
"""Of one account: the rest is for others."""
KEPT: Final = 50
KEPT_LINES: Final = 500


@dataclass(slots=True)
class Job:
    """One of them. Its own thread writes; pages read."""

    title: str
    owner: Hashable
    """Key of the account that may see and stop it."""
    started_ms: int
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    state: str = "running"
    """running, done, stopped, failed."""
    done: int = 0
    total: int | None = None
    """None: not known."""
    ended_ms: int = 0
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))
    """What it says; the newest 500."""
    stop: threading.Event = field(default_factory=threading.Event)

    def say(self, line: str) -> None:
        """One line for the reader."""
        self.lines.append(line)


class Jobs:
    """All jobs of the console."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def start(self, title: str, owner: Hashable, work: Callable[[Job], None]) -> Job:
        """Begin; `work(job)` looks at job.stop between two steps. ConsoleError: too many run."""
        job = Job(title, owner, self._now_ms())
        with self._lock:
            running = [other.owner for other in self._jobs.values() if other.state == "running"]
            own = running.count(owner)
            if own >= MOST_OF_ONE:
                raise ConsoleError(f"{own} of your jobs run already: wait for one, or stop it", 503)
            if len(running) >= MOST_RUNNING:
                raise ConsoleError(f"{len(running)} jobs run already: wait for one to end", 503)
            self._jobs[job.id] = job
            ended = [key for key, other in self._jobs.items() if other.state != "running"]
            for key in ended[: max(len(self._jobs) - KEPT, 0)]:
                del self._jobs[key]
        thread = threading.Thread(target=self._run, args=(job, work), name=f"job-{job.id[:8]}")
        try:
            thread.start()
        except RuntimeError as error:  # it would count as running for ever
            with self._lock:
                del self._jobs[job.id]
            raise ConsoleError(f"no job can be started: {error}", 503) from error
        return job

    def find(self, job_id: str, owner: Hashable) -> Job:
        """A job of this account. ConsoleError when there is none."""
        with self._lock:
            job = self._jobs.get(job_id)
        if job is None or job.owner != owner:
            raise ConsoleError("there is no such job of yours; the last 50 are kept", 404)
        return job

    def of(self, owner: Hashable) -> list[Job]:
        """The jobs of an account, the newest first."""
        with self._lock:
            return [job for job in reversed(self._jobs.values()) if job.owner == owner]

    def stop_all(self) -> None:
        """The console ends: each stops after its step."""
        with self._lock:
            for job in self._jobs.values():
                job.stop.set()

    def _run(self, job: Job, work: Callable[[Job], None]) -> None:
        state = "failed"
        try:
            work(job)
            state = "stopped" if job.stop.is_set() else "done"
        except (ConsoleError, *ANSWER_ERRORS) as error:
            job.say(str(error))
        except Exception:
            log.exception("job %s failed", job.title)
            job.say("The console itself failed at this; its log says where.")
        finally:
            job.ended_ms = self._now_ms()
            job.state = state
