"""Dead letters: listDlq, resendDlq, exportDlq.

Extensions: RocketMQ's mqadmin has no such commands; its dashboard does this in pages. What counts
as resent, and what happens to properties, is decided in tools/dead_letter_resend.py.

Tested by tests/tools/test_dead_letter_commands.py.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Final

import click

from tools.account import find_signer
from tools.admin_client import AdminClient
from tools.command_line import CommandContext, command, print_error
from tools.dead_letter_resend import ResendCount, ResendOrder, ResendStep, letter_key, resend
from tools.dead_letters import (
    DeadLetter,
    Read,
    Unread,
    count_dead_letters,
    find,
    groups_with_dead_letters,
    newest,
    scan,
)
from tools.errors import AdminError
from tools.message_finder import PEER_ERRORS
from tools.message_puller import TimeSpan
from tools.message_text import KEYS, TAGS, parse_time, second_text
from tools.options import FLAG, POSITIVE, SHOW_DEFAULT
from tools.report import (
    NO_DATA,
    Cell,
    Column,
    Report,
    heading_report,
    json_text,
    row_report,
)
from tools.resend_audit import DEFAULT_AUDIT_FILE, AuditLine, ResendAudit

DEFAULT_LIST: Final = 100
GROUP_COLUMNS: Final = (
    Column("#Group", "group", width=32),
    Column("#Dead Letters", "count", right=True),
    Column("#Last", "lastTimestamp"),
)
LETTER_COLUMNS: Final = (
    Column("#Letter ID", "letterId", width=32),
    Column("#Origin Topic", "originTopic", width=24),
    Column("#Retries", "reconsumeTimes", right=True),
    Column("#Stored", "storeTimestamp", width=19),
    Column("#Age", "ageMs", right=True, width=8),
    Column("#Size", "bodySize", right=True, width=8),
    Column("#Resent", "resentTimestamp", width=19),
    Column("#Message ID", "msgId", width=32),
    Column("#Tags", "tags"),
    Column("#Keys", "keys"),
)
STEP_COLUMNS: Final = (
    Column("#Letter ID", "letterId", width=32),
    Column("#Topic", "topic", width=24),
    Column("#Result", "result", width=19),
    Column("#New Message ID", "newMsgId", width=32),
    Column("#Reason", "reason"),
)

_Group = Annotated[str, "-g --consumerGroup", "Consumer group name."]
_TIME_HELP: Final = "milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"
_Begin = Annotated[str | None, "-b --beginTimestamp", f"Dead since: {_TIME_HELP}."]
_End = Annotated[str | None, "-e --endTimestamp", f"Dead before: {_TIME_HELP}."]
_Path = click.Path(dir_okay=False, path_type=Path)
_AuditFile = Annotated[
    Path, "--auditFile FILE", "What was resent: a line of JSON each.", _Path, SHOW_DEFAULT
]


def _times(begin: str | None, end: str | None) -> TimeSpan:
    return TimeSpan(
        None if begin is None else parse_time(begin), None if end is None else parse_time(end)
    )


# -- listDlq -----------------------------------------------------------------------------------


@command("listDlq")
def list_dlq(
    admin: AdminClient,
    *,
    group: Annotated[str | None, "-g --consumerGroup", "Its messages [without: all groups]."],
    begin: _Begin,
    end: _End,
    count: Annotated[int, "-m --maxNum", "At most.", POSITIVE, SHOW_DEFAULT] = DEFAULT_LIST,
    audit_file: _AuditFile = DEFAULT_AUDIT_FILE,
) -> Iterator[Report]:
    """The newest dead letters of a group, newest first, or how many each group has."""
    if group is None:
        return _list_groups(admin)
    return _list_letters(admin, group, _times(begin, end), count, audit_file)


def _list_groups(admin: AdminClient) -> Iterator[Report]:
    groups = groups_with_dead_letters(admin.topic_names())
    yield heading_report(GROUP_COLUMNS)
    failed = 0
    for group in groups:
        try:
            found = count_dead_letters(admin, group)
        except PEER_ERRORS as error:
            print_error("listDlq", f"group {group}: {error}")
            failed += 1
            continue
        last = Cell(second_text(found.last_ms) if found.last_ms else "-", found.last_ms)
        yield row_report(GROUP_COLUMNS, (group, found.count, last))
    if failed:
        raise AdminError(f"{failed} of {len(groups)} groups could not be read")


def _list_letters(
    admin: AdminClient, group: str, times: TimeSpan, count: int, audit_file: Path
) -> Iterator[Report]:
    audit = ResendAudit(audit_file)
    told = audit.told(group)
    letters, problems = newest(admin, group, count, times)
    yield heading_report(LETTER_COLUMNS)
    for letter in letters:
        key = letter_key(letter)
        yield _letter_report(
            letter, admin.now_ms(), told.resent.get(key), is_unsure=key in told.unsure
        )
    for problem in problems:
        print_error("listDlq", problem)
    if problems:
        raise AdminError(f"{len(problems)} queues could not be read: there may be more")


def _letter_report(
    letter: DeadLetter, now_ms: int, resent: AuditLine | None, *, is_unsure: bool
) -> Report:
    message = letter.message
    data = letter.summary_json(now_ms)
    resent_ms = None if resent is None else resent.time_ms
    row = (
        letter.letter_id,
        letter.origin_topic or "?",
        message.reconsume_times,
        second_text(message.store_timestamp),
        f"{data['ageMs'] // 1000} s",
        message.stored_body_size,
        "unknown" if is_unsure else "-" if resent_ms is None else second_text(resent_ms),
        message.msg_id,
        message.properties.get(TAGS, ""),
        message.properties.get(KEYS, ""),
    )
    more = {
        "resentTimestamp": resent_ms,
        "resentMsgId": None if resent is None else resent.new_msg_id,
        "mayBeResent": is_unsure or resent is not None,
    }
    return Report(row_report(LETTER_COLUMNS, row).text, data | more)


# -- resendDlq ---------------------------------------------------------------------------------


def _question(
    group: str,
    msg_ids: str | None,
    all_of_them: bool,
    begin: str | None,
    end: str | None,
    to_topic: str | None,
    **_others: object,
) -> str:
    """Also checks the options, as it comes first."""
    chosen = _ids(msg_ids)
    is_range = all_of_them or begin is not None or end is not None
    if is_range == bool(chosen):
        raise click.UsageError("which? either -i IDS, or -a for all, or the times -b and -e")
    if chosen:
        which = f"{len(chosen)} dead letters"
    elif begin is None and end is None:
        which = "all dead letters"
    else:
        which = f"the dead letters from {begin or 'the first'} to {end or 'now'}"
    if to_topic is None:
        return f"Send {which} of group {group} again to every group of the topics they came from?"
    return f"Send {which} of group {group} to topic {to_topic}?"


def _ids(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


@command("resendDlq", asks=_question)
def resend_dlq(
    admin: AdminClient,
    *,
    group: _Group,
    msg_ids: Annotated[
        str | None, "-i --msgId IDS", "Letter ids or unique keys, separated by commas."
    ],
    all_of_them: Annotated[bool, "-a --all", "All that the group has.", FLAG],
    begin: _Begin,
    end: _End,
    rate: Annotated[
        float | None, "-r --rate", "At most so many messages a second.", click.FloatRange(min=0.01)
    ],
    to_topic: Annotated[
        str | None,
        "-t --toTopic",
        "Instead of the topic that each came from; %RETRY%GROUP: for this group only.",
    ],
    again: Annotated[bool, "--again", "Also what the audit file says was resent.", FLAG],
    audit_file: _AuditFile = DEFAULT_AUDIT_FILE,
) -> Iterator[Report]:
    """Send dead letters again; only those that are answered SEND_OK count."""
    _question(group, msg_ids, all_of_them, begin, end, to_topic)
    chosen = _ids(msg_ids)
    times = _times(begin, end)
    letters: Iterator[Read] = find(admin, group, chosen) if chosen else scan(admin, group, times)
    order = ResendOrder(
        group=group,
        who=_who(),
        origin=socket.gethostname(),
        to_topic=to_topic,
        rate=rate,
        again=again,
    )
    return _resend(admin, letters, order, ResendAudit(audit_file))


def _who() -> str:
    """The user of this machine, and the account that signs for it."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    signer = find_signer(os.environ.get("ROCKETMQ_HOME"))
    return user if signer is None else f"{user} as {signer.access_key}"


def _resend(
    admin: AdminClient, letters: Iterator[Read], order: ResendOrder, audit: ResendAudit
) -> Iterator[Report]:
    context = click.get_current_context().find_object(CommandContext) or CommandContext()
    count = ResendCount()
    with audit:
        yield heading_report(STEP_COLUMNS)
        for step in resend(admin, letters, order, audit, wait=context.wait):
            count.add(step)
            yield _step_report(step)
    if not count.total:
        raise AdminError(f"group {order.group} has no such dead letter: nothing was resent")
    yield Report(f"{count}; audit: {audit.path}", NO_DATA)
    if count.not_resent:
        raise AdminError(f"{count.not_resent} of {count.total} were not resent")


def _step_report(step: ResendStep) -> Report:
    row = (
        step.what,
        step.topic or "?",
        step.result,
        step.new_msg_id or "-",
        step.reason or "",
    )
    return Report(row_report(STEP_COLUMNS, row).text, step.to_json())


# -- exportDlq ---------------------------------------------------------------------------------


@command("exportDlq")
def export_dlq(
    admin: AdminClient,
    group: _Group,
    path: Annotated[Path, "-f --file FILE", "Where to: a line of JSON each.", _Path],
    begin: _Begin,
    end: _End,
) -> Report:
    """Write dead letters with their bodies to a file, oldest first; they stay where they are."""
    letters = scan(admin, group, _times(begin, end))
    part = path.with_name(f"{path.name}.part")
    try:
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            count, problems = _write(letters, file)
        part.replace(path)
    except OSError as error:
        raise AdminError(f"cannot write {path}: {error.strerror or error}") from error
    for problem in problems:
        print_error("exportDlq", problem)
    if problems:
        raise AdminError(f"{path} has {count} dead letters, but not all: see above")
    data = {"group": group, "file": str(path), "count": count}
    return Report(f"{count} dead letters of group {group} written to {path}", data)


def _write(letters: Iterator[Read], file: IO[str]) -> tuple[int, list[str]]:
    count, problems = 0, []
    for letter in letters:
        if isinstance(letter, Unread):
            problems.append(str(letter))
        else:
            file.write(json_text(letter.export_json()) + "\n")
            count += 1
    return count, problems
