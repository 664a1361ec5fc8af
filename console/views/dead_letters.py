"""Dead letters: by group; one group's, with what was resent; resending and exporting them.

Only SEND_OK counts as resent (tools/dead_letter_resend.py says what is promised); each letter has
its audit line in the file that `mqadmin resendDlq` writes, too. Bodies are for signed-in readers.

Tested by tests/console/test_server.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from console.cells import unanswered_cell
from console.jobs import Job
from console.lanes import ANSWER_ERRORS, Question
from console.page import Action, ConsoleError, Done, Field, Page, Query, Reader, View
from console.tables import Table, TableCell, link, moment
from console.views.messages import place_url
from tools.admin_client import AdminClient
from tools.commands.ha_status import duration_text, size_text
from tools.dead_letter_resend import ResendCount, ResendOrder, letter_key, resend
from tools.dead_letters import (
    DeadLetter,
    DeadLetterCount,
    Read,
    count_dead_letters,
    find,
    groups_with_dead_letters,
    newest,
    scan,
)
from tools.errors import AdminError
from tools.message_puller import TimeSpan
from tools.message_text import KEYS, TAGS
from tools.report import columns
from tools.resend_audit import DEFAULT_AUDIT_FILE, AuditLine, ResendAudit

GROUPS: Final = columns("Group group | Dead letters count > | Last lastTimestamp")
LETTERS: Final = columns(
    "Letter letterId | Came from originTopic | Retries reconsumeTimes > | "
    "Dead since storeTimestamp | Age ageMs > | Size bodySize > | Keys keys | Tags tags | "
    "Resent resentTimestamp"
)
COUNTED: Final = 50
"""Groups whose letters are counted for the list: each costs its brokers a request."""
COUNT_AGE_MS: Final = 30_000
MOST_SHOWN: Final = 1_000
MOST_IDS: Final = 1_000
MAX_RATE: Final = 10_000


def dead_letters(reader: Reader, query: Query) -> Page:
    """The groups that have dead letters, and how many."""
    groups = groups_with_dead_letters(reader.snapshot.topics.value or ())
    client = reader.laned(COUNT_AGE_MS, is_later=True)
    counts = [_count(client, group) for group in groups[:COUNTED]]
    rows = [_group_row(group, found) for group, found in zip(groups, counts, strict=False)]
    rows += [[link(group, group_url(group)), None, None] for group in groups[COUNTED:]]
    left = len(groups) - COUNTED
    return Page(
        context={"uncounted": max(left, 0)},
        tables=[
            Table("groups", "Groups", GROUPS, rows, empty_text="No group has a dead-letter topic.")
        ],
    )


def _count(client: AdminClient, group: str) -> DeadLetterCount | str:
    try:
        return count_dead_letters(client, group)
    except ANSWER_ERRORS as error:
        return str(error)


def _group_row(group: str, found: DeadLetterCount | str) -> list[object]:
    name = link(group, group_url(group))
    if isinstance(found, str):
        return [name, unanswered_cell(found), None]
    return [name, found.count, moment(found.last_ms)]


def group_url(group: str) -> str:
    """The page of a group's dead letters."""
    return "/dead-letters/group?" + urlencode({"name": group}, errors="replace")


def group_letters(reader: Reader, query: Query) -> Page:
    """The newest dead letters of a group, and which of them were resent.

    name: the group; from, to: when they died; count.
    """
    reader.must_sign_in("dead letters")
    group = query.needed("name")
    times = TimeSpan(query.time_ms("from"), query.time_ms("to"))
    count = query.number("count", 100, 1, MOST_SHOWN)
    found, problems = reader.look(
        Question(
            ("dlq newest", group, count, times),
            lambda client, _: newest(client, group, count, times),
        )
    )
    with ResendAudit(_audit_file(reader)) as audit:
        told = audit.told(group)
    rows = []
    for letter in found:
        key = letter_key(letter)
        cell = _resent_cell(told.resent.get(key), is_unsure=key in told.unsure)
        rows.append(_letter_row(letter, reader.now_ms, cell))
    return Page(
        title=group,
        context={
            "group": group,
            "problems": problems,
            "from_text": query.text("from"),
            "to_text": query.text("to"),
            "count": count,
            "crumbs": [("Dead letters", "/dead-letters")],
        },
        tables=[
            Table(
                "letters",
                f"Dead letters of {group}",
                LETTERS,
                rows,
                empty_text="It has none within this time.",
            )
        ],
    )


def _resent_cell(line: AuditLine | None, *, is_unsure: bool) -> TableCell | None:
    """When it was resent; a run that ended before it had the result leaves nobody who knows."""
    if is_unsure:
        return TableCell("unknown: sent perhaps")
    return None if line is None else moment(line.time_ms)


def _letter_row(letter: DeadLetter, now_ms: int, resent: TableCell | None) -> list[object]:
    message = letter.message
    age_ms = max(now_ms - message.store_timestamp, 0)
    return [
        link(letter.letter_id, place_url(message)),
        letter.origin_topic,
        message.reconsume_times,
        moment(message.store_timestamp),
        TableCell(duration_text(age_ms / 1000), age_ms),
        TableCell(size_text(message.stored_body_size), message.stored_body_size),
        message.properties.get(KEYS),
        message.properties.get(TAGS),
        resent,
    ]


def _audit_file(reader: Reader) -> Path:
    return Path(reader.options.get("resend_audit", DEFAULT_AUDIT_FILE)).expanduser()


# -- resending -------------------------------------------------------------------------------------


def _order(reader: Reader, query: Query) -> ResendOrder:
    rate = query.number("rate", 0, 0, MAX_RATE)
    account = reader.account
    return ResendOrder(
        group=query.needed("group"),
        who="" if account is None else account.name,
        origin=f"mqconsole {reader.address}".strip(),
        to_topic=query.text("toTopic") or None,
        rate=float(rate) if rate else None,
        again=query.text("again") == "true",
    )


def _plan(reader: Reader, query: Query) -> list[str]:
    order = _order(reader, query)
    ids = query.words("ids", MOST_IDS)
    known = count_dead_letters(reader.client(), order.group)
    which = f"{len(ids)} named dead letters" if ids else f"all {known.count} dead letters"
    where = f"topic {order.to_topic}" if order.to_topic else "the topic that each came from"
    rate = f", at most {order.rate:.0f} a second" if order.rate else ""
    sentences = [
        f"{which} of group {order.group} are sent again, to {where}{rate}.",
        "Every group that consumes that topic gets them, not this one alone.",
        "Only SEND_OK counts as resent. The letters stay where they are.",
    ]
    if order.again:
        sentences.append("Those that were resent before are sent once more.")
    else:
        sentences.append("Those that the audit file says were resent are left out.")
    return sentences


def _run(reader: Reader, query: Query) -> Done:
    order = _order(reader, query)
    ids = query.words("ids", MOST_IDS)
    client = reader.client()
    path = _audit_file(reader)
    total = len(ids) or count_dead_letters(client, order.group).count

    def work(job: Job) -> None:
        job.total = total
        letters = find(client, order.group, ids) if ids else scan(client, order.group)
        _resend(job, client, letters, order, path)

    title = f"Resend dead letters of {order.group}"
    job = reader.jobs.start(title, reader.account_key, work)
    return Done(["The resending has begun; its page shows each result."], f"/jobs/{job.id}")


def _resend(
    job: Job, client: AdminClient, letters: Iterable[Read], order: ResendOrder, path: Path
) -> None:
    count = ResendCount()
    try:
        with ResendAudit(path) as audit:
            for step in resend(client, letters, order, audit, wait=job.stop.wait):
                count.add(step)
                job.done = count.total
                reason = f": {step.reason}" if step.reason else ""
                job.say(f"{step.what} {step.result}{reason}")
                if job.stop.is_set():
                    break
    except AdminError as error:
        job.say(f"{count}")
        raise ConsoleError(str(error)) from error
    job.say(f"{count}")


VIEWS: Final = [
    View("/dead-letters", "Dead letters", "Messages", "dead_letters.html.j2", dead_letters),
    View("/dead-letters/group", "Dead letters", "", "dead_letter_group.html.j2", group_letters),
]
ACTIONS: Final = [
    Action(
        "resendDeadLetters",
        "Resend dead letters",
        [
            Field("group", "Group"),
            Field(
                "ids",
                "Letters",
                kind="textarea",
                needed=False,
                help="Ids between blanks; none: all of the group.",
            ),
            Field("toTopic", "To another topic", needed=False),
            Field("rate", "At most a second", kind="number", needed=False),
            Field("again", "Also those that were resent before", kind="checkbox", needed=False),
        ],
        _plan,
        _run,
    )
]
