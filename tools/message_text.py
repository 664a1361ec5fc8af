"""Messages as operators read them: RocketMQ's texts, and their JSON form.

Pure functions but for save_body, which writes one file. Main thread. Bodies and properties are
untrusted text: control characters are shown as \\xNN.

Tested by tests/tools/test_mqadmin_reading.py.
"""

from __future__ import annotations

import base64
import os
import re
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from remoting.body.message_queue import MessageQueue
from tools.errors import AdminError
from tools.message_decoder import MessageExt
from tools.report import safe_line, safe_text

TAGS: Final = "TAGS"
KEYS: Final = "KEYS"

_TIMESTAMP: Final = "%Y-%m-%d#%H:%M:%S:%f"
_UNSAFE_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_-]")


def time_text(timestamp_ms: int) -> str:
    """A time in the local zone: 2026-11-20 12:28:52,730."""
    return f"{second_text(timestamp_ms)},{timestamp_ms % 1000:03d}"


def second_text(timestamp_ms: int) -> str:
    """A time in the local zone without its milliseconds."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def compact_time_text(timestamp_ms: int) -> str:
    """A time in the local zone, digits only: 20261120122852730 (Java: timeMillisToHumanString)."""
    digits = "".join(char for char in second_text(timestamp_ms) if char.isdigit())
    return f"{digits}{timestamp_ms % 1000:03d}"


def parse_time(text: str) -> int:
    """Milliseconds out of "1795177732468" or "2026-11-20#12:28:52:468" (local zone)."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.strptime(text, _TIMESTAMP).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise AdminError(
            f"time {text!r} is neither milliseconds nor yyyy-MM-dd#HH:mm:ss:SSS"
        ) from error


def map_text(table: dict[str, str]) -> str:
    """A map as Java prints it: {a=1, b=2}."""
    return "{" + ", ".join(f"{key}={value}" for key, value in table.items()) + "}"


def queue_text(queue: MessageQueue) -> str:
    """A queue as Java prints it."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def message_ext_text(message: MessageExt, *, with_body: bool = True) -> str:
    """A message as Java's MessageExt prints itself."""
    numbers = ", ".join(str(byte - 256 if byte > 127 else byte) for byte in message.body)
    body = f"[{numbers}]" if with_body else "null"
    return safe_line(
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, "
        f"storeSize={message.store_size}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp}, "
        f"bornHost=/{message.born_host}, storeTimestamp={message.store_timestamp}, "
        f"storeHost=/{message.store_host}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={message.phy_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={map_text(message.properties)}, body={body}, transactionId='null'}}]"
    )


def body_text(message: MessageExt, charset: str = "utf-8") -> str:
    """A body as text, with the reason when it is not as it was sent."""
    text = safe_text(message.body.decode(charset, errors="replace"))
    return f"{text} ({message.body_note})" if message.body_note else text


def message_line(message: MessageExt, *, charset: str, with_body: bool) -> str:
    """The line of consumeMessage and printMsg."""
    body = body_text(message, charset) if with_body else "NOT PRINT BODY"
    return f"MSGID: {safe_line(message.msg_id)} {message_ext_text(message)} BODY: {body}"


def message_json(message: MessageExt) -> dict[str, Any]:
    """A message for programs; a body that is no UTF-8 goes as base64 in bodyBase64."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode()}
    if message.body_note is not None:
        body["bodyNote"] = message.body_note
    return {
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "topic": message.topic,
        "tags": message.properties.get(TAGS),
        "keys": message.properties.get(KEYS),
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.phy_offset,
        "storeSize": message.store_size,
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host,
        "storeHost": message.store_host,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCRC": message.body_crc,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "properties": message.properties,
        **body,
    }


def detail_lines(message: MessageExt, body_path: str, *, with_offset_id: bool) -> list[str]:
    """The lines of queryMsgBy*: one fact each."""
    facts: list[tuple[str, object]] = [
        ("Topic:", message.topic),
        ("Tags:", f"[{message.properties.get(TAGS, 'null')}]"),
        ("Keys:", f"[{message.properties.get(KEYS, 'null')}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.phy_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", time_text(message.born_timestamp)),
        ("Store Timestamp:", time_text(message.store_timestamp)),
        ("Born Host:", message.born_host),
        ("Store Host:", message.store_host),
        ("System Flag:", message.sys_flag),
        ("Properties:", map_text(message.properties)),
        ("Message Body Path:", body_path),
    ]
    if with_offset_id:
        facts.insert(0, ("OffsetID:", message.offset_msg_id))
    if message.body_note is not None:
        facts.append(("Message Body:", message.body_note))
    return [f"{name:<20} {safe_line(str(value))}" for name, value in facts]


def save_body(message: MessageExt) -> Path:
    """Write the body to a file of its own and return its path.

    In a directory of this user only. The id is untrusted text: only its letters and digits
    get into the path, and a symbolic link there is not followed.
    """
    directory = Path(tempfile.gettempdir()) / f"rocketmq-{os.getuid()}" / "msgbodys"
    name = _UNSAFE_IN_NAME.sub("_", message.msg_id)[:100]
    path = directory / name
    try:
        for part in (directory.parent, directory):
            part.mkdir(mode=0o700, exist_ok=True)
        if directory.parent.is_symlink() or directory.parent.stat().st_uid != os.getuid():
            raise AdminError(f"{directory.parent} belongs to another user: remove it first")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(message.body)
    except OSError as error:
        raise AdminError(f"cannot write the message's body to {path}: {error}") from error
    return path
