"""RightsLoad: an account's right to a topic is taken away and given back during the load.

Once the change is answered, nothing of the account may succeed: no send, no pull and no pop, those
that were held before the change among them, also after a restart of the broker and on a slave that
was promoted. Whether something was given after the change is seen by its number: it was sent then.
A second account keeps its right, which shows that a broker that refuses knows the accounts.

All other clients of a run have white addresses; the accounts come from another address of loopback.
A thread, with connections of its own for each account.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Final

from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.signature import RequestSigner
from tools.chaos.ack_log import SEND_OK, STORED
from tools.chaos.frame_client import FrameClient, pull_request, send_request
from tools.chaos.mixed_load import LoadThread
from tools.chaos.workload import Where
from tools.message_decoder import decode_messages

TOPIC: Final = "ChaosRights"
SETTINGS: Final = {"aclEnable": "true"}
_GROUP: Final = "mqchaos-rights"
_SOURCE: Final = "127.1.0.1"
"""Where the accounts' clients connect from."""
_CHANGED: Final = RequestSigner("mqchaos-changed", "mqchaos-changed-secret")
_STEADY: Final = RequestSigner("mqchaos-steady", "mqchaos-steady-secret")
_ALL, _NOTHING = "PUB|SUB", "DENY"
_ACCOUNTS: Final = f"""\
globalWhiteRemoteAddresses:
- 127.0.0.*
accounts:
- accessKey: mqchaos-changed
  secretKey: mqchaos-changed-secret
  topicPerms: [{TOPIC}={_ALL}]
  groupPerms: [{_GROUP}=SUB]
- accessKey: mqchaos-steady
  secretKey: mqchaos-steady-secret
  topicPerms: [{TOPIC}={_ALL}]
  groupPerms: [{_GROUP}=SUB]
"""
_TIMEOUT_S: Final = 8.0
_HELD_MS: Final = 6_000
_WOKEN_S: Final = 2.0
_LONG_EVERY: Final = 3
_LONG_S: Final = 5.0
_TRIES: Final = 3
_ACL: Final = "AclException"
_SEND, _PULL, _POP = "send", "pull", "pop"


def write_accounts(home: Path) -> None:
    """The access files of a broker with this rocketmqHome. Raises OSError."""
    conf = home / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    (conf / "plain_acl.yml").write_text(_ACCOUNTS)


class RightsLoad(LoadThread):
    """See the module."""

    def __init__(self, where: Where, period_s: float) -> None:
        super().__init__(where, period_s)
        self._number = 0
        self._lock = threading.Lock()
        """Held while the right changes, and while a broker is asked about it."""
        self._is_revoked = False
        """Whether the last change took the right, and was answered."""
        self._revoked_s = 0.0
        self.refused = 0
        """Requests of the account without its right that were refused."""
        self.held = 0
        """Those of them that had been let in before."""

    def text(self) -> str:
        return f"{super().text()}, {self.refused:,} refused, {self.held:,} of them held before"

    def forget_since(self, time_s: float) -> None:
        """The master that took the changes is lost, and nobody promised those since."""
        if self._revoked_s > time_s:
            self._is_revoked = False

    def step(self, client: FrameClient) -> bool:
        """Give the right, use it, hold requests, take it, and try everything. Every third time it
        is not given back for seconds, so that a slave has to know of it."""
        with self._lock:
            if self._is_revoked:
                self._try_all(client.peer)
                if self.done % _LONG_EVERY == 0 and time.monotonic() - self._revoked_s < _LONG_S:
                    return False
            return self._change_rights(client)

    def _change_rights(self, client: FrameClient) -> bool:
        self._is_revoked = False
        if not _change(client, _ALL):
            return False
        with (
            FrameClient(client.peer, _TIMEOUT_S, _SOURCE, _CHANGED) as sends,
            FrameClient(client.peer, _TIMEOUT_S, _SOURCE, _CHANGED) as pulls,
            FrameClient(client.peer, _TIMEOUT_S, _SOURCE, _CHANGED) as pops,
        ):
            if _is_refused(given := self._send(sends)):
                self.violations.append(
                    f"a right was given back, and a send refused: {given.remark}"
                )
            held = [(_PULL, pulls, _hold_pull(pulls)), (_POP, pops, _hold_pop(pops))]
            first = self._take_right(client)
            if first is None:
                return False
            for _ in range(2):
                self._send(client)
            for what, waiting, opaque in held:
                with contextlib.suppress(TimeoutError):
                    answer = waiting.take(opaque, _WOKEN_S)
                    self.held += self._judge(f"held {what}", answer, first)
        self._try_all(client.peer)
        return True

    def finish(self) -> None:
        """After the stop, of a broker that serves: take the right once more."""
        try:
            with FrameClient(self._where(), _TIMEOUT_S) as client:
                if self._take_right(client) is None:
                    self.violations.append("a change of rights was refused after the faults")
                else:
                    self._try_all(client.peer)
        except OSError as error:
            self.violations.append(f"rights could not be changed after the faults: {error}")

    def violations_of(self, address: tuple[str, int], as_of_s: float, who: str) -> list[str]:
        """What this broker gives away though the right was taken by `as_of_s` (monotonic seconds).
        who: how it is called. Raises OSError."""
        with self._lock:
            if not (self._is_revoked and self._revoked_s <= as_of_s):
                return []
            found = [
                f"{who}: a {what} of an account without the right was answered {answer.code}"
                for what, answer in self._asked(address)
                if not _is_refused(answer)
            ]
        with FrameClient(address, _TIMEOUT_S, _SOURCE, _STEADY) as client:
            answer = client.ask(pull_request(TOPIC, 0, 0, group=_GROUP))
        if _is_refused(answer):
            found.append(f"{who}: an account that has the right was refused: {answer.remark}")
        return found

    def _take_right(self, client: FrameClient) -> int | None:
        """The number of the next message, which the account may not get; None: not answered so."""
        if not _change(client, _NOTHING):
            return None
        self._revoked_s, self._is_revoked = time.monotonic(), True
        return self._number

    def _send(self, client: FrameClient) -> RemotingCommand:
        number, self._number = self._number, self._number + 1
        return client.ask(send_request(TOPIC, 0, str(number).encode()))

    def _try_all(self, address: tuple[str, int]) -> None:
        for what, answer in self._asked(address):
            self._judge(what, answer, 0)

    def _asked(self, address: tuple[str, int]) -> list[tuple[str, RemotingCommand]]:
        """What an account is answered that has no right."""
        answers = []
        with FrameClient(address, _TIMEOUT_S, _SOURCE, _CHANGED) as client:
            for _ in range(_TRIES):
                answers.append((_SEND, self._send(client)))
                pull = pull_request(TOPIC, 0, 0, group=_GROUP)
                answers.append((_PULL, client.ask(pull)))
                answers.append((_POP, client.ask(_pop_request(0))))
        return answers

    def _judge(self, what: str, answer: RemotingCommand, first: int) -> bool:
        """first: lower numbers were sent while it had the right. Whether it was refused."""
        if _is_refused(answer):
            self.refused += 1
            return True
        if what == _SEND:
            got = answer.code in STORED
        else:
            bodies = [m.body for m in decode_messages(answer.body)] if answer.code == 0 else []
            got = any(int(body) >= first for body in bodies)
        if got:
            self.violations.append(
                f"a {what} of an account succeeded after its right was taken away, and that "
                "answered"
            )
        return False


def _change(client: FrameClient, right: str) -> bool:
    fields = {
        "accessKey": _CHANGED.access_key,
        "secretKey": "mqchaos-changed-secret",
        "admin": "false",
        "topicPerms": f"{TOPIC}={right}",
        "groupPerms": f"{_GROUP}=SUB",
    }
    code = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    return client.call(code, fields).code == SEND_OK


def _hold_pull(client: FrameClient) -> int:
    end = client.max_offset(TOPIC, 0)
    return _hold(client, pull_request(TOPIC, 0, max(end, 0), _HELD_MS, group=_GROUP))


def _hold_pop(client: FrameClient) -> int:
    while client.ask(_pop_request(0)).code == SEND_OK:
        pass
    return _hold(client, _pop_request(_HELD_MS))


def _hold(client: FrameClient, request: RemotingCommand) -> int:
    client.post(request)
    client.max_offset(TOPIC, 0)  # What was asked before is held by now.
    return request.opaque


def _is_refused(answer: RemotingCommand) -> bool:
    return answer.code not in STORED and _ACL in (answer.remark or "")


def _pop_request(poll_ms: int) -> RemotingCommand:
    fields: dict[str, object] = {
        "consumerGroup": _GROUP,
        "topic": TOPIC,
        "queueId": 0,
        "maxMsgNums": 32,
        "invisibleTime": 60_000,
        "pollTime": poll_ms,
        "bornTime": time.time_ns() // 1_000_000,
        "initMode": 0,
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    texts = {key: str(value) for key, value in fields.items()}
    return RemotingCommand.request(RequestCode.POP_MESSAGE, texts)
