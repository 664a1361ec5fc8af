"""Jobs: what runs for a reader, with its progress.

Tested by tests/console/test_actions.py.
"""

from __future__ import annotations

from typing import Final

from console.jobs import Job
from console.page import Page, Query, Reader, View
from console.tables import Table, badge, link, moment
from tools.report import columns

JOBS: Final = columns("Job title | State state | Done done > | Of total > | Started started")


def job_list(reader: Reader, query: Query) -> Page:
    """The jobs of the reader's account, the newest first."""
    reader.must_sign_in("your jobs")
    rows = [_row(job) for job in reader.jobs.of(reader.account_key)]
    return Page(tables=[Table("jobs", "Jobs", JOBS, rows, empty_text="No job was started.")])


def one_job(reader: Reader, query: Query) -> Page:
    """One job: how far it is, and what it says."""
    reader.must_sign_in("your jobs")
    job = reader.jobs.find(query.needed("job"), reader.account_key)
    data = {
        "title": job.title,
        "state": job.state,
        "done": job.done,
        "total": job.total,
        "lines": list(job.lines),
    }
    return Page(title=job.title, context={"job": job, "lines": data["lines"]}, data=data)


def _row(job: Job) -> list[object]:
    return [
        link(job.title, f"/jobs/{job.id}"),
        badge(job.state),
        job.done,
        job.total,
        moment(job.started_ms),
    ]


VIEWS: Final = [
    View("/jobs", "Jobs", "", "jobs.html.j2", job_list),
    View("/jobs/{job}", "Job", "", "job.html.j2", one_job),
]
