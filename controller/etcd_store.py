"""EtcdStore: the groups of several controllers, and which of them leads, in an etcd.

    <etcdKeyPrefix>/<controllerDLegerGroup>/leader      {"id":"n0","address":"host:port"}, with a
                                                        lease: gone when nobody renews it
    <etcdKeyPrefix>/<controllerDLegerGroup>/set/<name>  one group, as text (controller/group_codec)

A group's version is the key's mod_revision, a leadership's fence the create_revision of the leader
key: each write is a transaction that compares both, so that whoever was replaced changes nothing,
however late its request arrives. All reads are linearizable. Two objects of this class in a
controller, each used by one thread with a connection of its own: one for groups
(ControllerService), one for leadership (controller/leadership.py). Decides nothing, keeps nothing
but the connection.

Tested by tests/controller/test_etcd_store.py, with a real etcd tests/interop/test_etcd.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from controller.etcd_client import EtcdClient, EtcdError
from controller.etcd_messages import (
    NOT_FOUND,
    KeepAliveAnswer,
    KeyValue,
    LeaseAnswer,
    MalformedAnswerError,
    NoContent,
    RangeAnswer,
    TxnAnswer,
)
from controller.events import Outcome, Stored, Swap, SwapEnded
from controller.group_codec import GroupsTextError, decode_groups, encode_groups
from controller.group_store import UnreadableGroupError
from controller.leader import Leader
from remoting.control_characters import holds_control

PAGE: Final = 20
"""Groups in one answer: etcd takes values of 1.5 MB, and one bad value must not hide the others."""
MOST_GROUPS: Final = 10_000
_MOST_LEADER_BYTES: Final = 4_096
_ANY_VERSION: Final = 0
"""The version inside of a value: the key's counts."""
_read_leader: Final = msgspec.json.Decoder(Leader).decode


class LeaderSeen(NamedTuple):
    """What stands in the leader key at a moment."""

    leader: Leader | None
    """None: nobody, or nothing that a controller writes."""
    fence: int
    """Of the key; 0: there is none."""
    lease: int
    """Of the key; 0: it never ends by itself."""


class Groups(NamedTuple):
    """Groups as read at one moment."""

    readable: dict[str, Stored]
    unreadable: dict[str, str]
    """By name; why."""
    revision: int
    """Of that moment."""


class Lease(NamedTuple):
    """A lease."""

    id: int
    sent_ms: int
    """When the request for it left."""


class EtcdStore:
    """See the module. GroupStore."""

    def __init__(self, client: EtcdClient, prefix: str, now_ms: Callable[[], int]) -> None:
        """prefix: etcdKeyPrefix/controllerDLegerGroup. now_ms: monotonic."""
        self._client = client
        self._now_ms = now_ms
        self.leader_key: Final = f"{prefix}/leader"
        self._set_prefix = f"{prefix}/set/".encode()

    def close(self) -> None:
        """Idempotent."""
        self._client.close()

    # -- groups --------------------------------------------------------------------------------

    def swap(self, swap: Swap) -> SwapEnded:
        """Write a group. Raises EtcdError: it is not known whether it is written, or will be."""
        key = self._set_prefix + swap.broker_name.encode()
        value = encode_groups({swap.broker_name: Stored(_ANY_VERSION, swap.group)})
        leader_key = self.leader_key.encode()
        body = {
            "compare": [
                {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": swap.version},
                _created(leader_key, swap.fence),
            ],
            "success": [{"request_put": {"key": key, "value": value}}],
            "failure": [{"request_range": {"key": leader_key}}],
        }
        answer = self._client.call("kv/txn", body, TxnAnswer, repeat=False)
        if answer.succeeded:
            if answer.header.revision <= swap.version:
                raise EtcdError(f"etcd: revision {answer.header.revision} after {swap.version}")
            outcome = Outcome.DONE
        else:
            found = self._leader_seen(_range_of(answer))
            outcome = Outcome.CONFLICT if found.fence == swap.fence else Outcome.FENCED
        version = answer.header.revision if answer.succeeded else 0
        return SwapEnded(swap.broker_name, swap.number, outcome, version)

    def load(self, broker_name: str) -> Stored:
        """A group as stored now. Raises EtcdError, UnreadableGroupError."""
        key = self._set_prefix + broker_name.encode()
        answer = self._client.call("kv/range", {"key": key}, RangeAnswer)
        if not answer.kvs:
            return Stored(0, None)
        if len(answer.kvs) != 1 or answer.kvs[0].key != key:
            raise EtcdError("etcd: it answers with other keys than those asked for")
        return self._stored(broker_name, answer.kvs[0])

    def load_all(self, since: int = 0, between: Callable[[], None] | None = None) -> Groups:
        """All groups; with `since` those written after that revision. between: called after each
        page. Raises EtcdError, and what `between` raises."""
        readable: dict[str, Stored] = {}
        unreadable: dict[str, str] = {}
        revision = 0
        for answer in self._pages(since):
            revision = revision or answer.header.revision
            for found in answer.kvs:
                name = found.key[len(self._set_prefix) :].decode(errors="backslashreplace")
                try:
                    readable[name] = self._stored(name, found)
                except UnreadableGroupError as error:
                    unreadable[name] = str(error)
            if between is not None:
                between()
        return Groups(readable, unreadable, revision)

    def _pages(self, since: int) -> Iterator[RangeAnswer]:
        """All of one revision: the first page's."""
        key, end = self._set_prefix, _end_of(self._set_prefix)
        body: dict[str, object] = {"range_end": end, "limit": PAGE}
        if since:
            body["min_mod_revision"] = since + 1
        for _ in range(MOST_GROUPS // PAGE):
            answer = self._client.call("kv/range", {**body, "key": key}, RangeAnswer)
            if any(not key <= found.key < end for found in answer.kvs):
                raise EtcdError("etcd: it answers with other keys than those asked for")
            yield answer
            if not (answer.more and answer.kvs):
                return
            key = answer.kvs[-1].key + b"\0"
            body.setdefault("revision", answer.header.revision)
        raise EtcdError(f"etcd holds more than {MOST_GROUPS} groups; are they all of brokers?")

    def _stored(self, name: str, found: KeyValue) -> Stored:
        try:
            groups = decode_groups(found.value)
            if groups.keys() != {name}:
                raise GroupsTextError(f"it is the text of {[*groups]!a:.80}")
        except GroupsTextError as error:
            raise UnreadableGroupError(
                f"the value of etcd's key {found.key!r:.200} is none that a controller writes: "
                f"{error!s:.200}; this group is not served until it is put back as it was: a "
                "controller that took it for empty would have a second master elected"
            ) from error
        return Stored(found.mod_revision, groups[name].group)

    # -- leadership ----------------------------------------------------------------------------

    def look(self) -> LeaderSeen:
        """Who leads now. Raises EtcdError."""
        answer = self._client.call("kv/range", {"key": self.leader_key.encode()}, RangeAnswer)
        return self._leader_seen(answer)

    def make_lease(self, lease_s: int) -> Lease:
        """Raises EtcdError."""
        sent_ms = self._now_ms()
        granted = self._client.call("lease/grant", {"TTL": lease_s}, LeaseAnswer, repeat=False)
        if not granted.lease or granted.time_to_live_s < lease_s:
            raise EtcdError(
                f"etcd: a lease of {granted.time_to_live_s} s where {lease_s} was asked"
            )
        return Lease(granted.lease, sent_ms)

    def acquire(self, leader: Leader, lease: int) -> int | None:
        """Become leader, if nobody is: the fence, or None. Raises EtcdError: perhaps it became
        one, or will."""
        key = self.leader_key.encode()
        value = msgspec.json.encode(leader)
        body = {
            "compare": [_created(key, 0)],
            "success": [
                {"request_put": {"key": key, "value": value, "lease": lease}},
                {"request_range": {"key": key}},
            ],
        }
        answer = self._client.call("kv/txn", body, TxnAnswer, repeat=False)
        if not answer.succeeded:
            return None
        seen = self._leader_seen(_range_of(answer, 1))
        if seen.lease != lease or not seen.fence:
            raise EtcdError("etcd: the leader key that was just written is another one")
        return seen.fence

    def renew(self, lease: int, fence: int, lease_s: int) -> int | None:
        """Prolong a leadership: since when it counts anew; None: it is over. Raises EtcdError."""
        sent_ms = self._now_ms()
        kept = self._client.call("lease/keepalive", {"ID": lease}, KeepAliveAnswer).result
        if kept.lease != lease or kept.time_to_live_s < lease_s:
            return None
        # The lease may live on without the key: somebody has removed it.
        return sent_ms if self.look().fence == fence else None

    def revoke(self, lease: int) -> None:
        """End a lease, and the leadership that has it; also one that has ended. Raises
        EtcdError."""
        try:
            self._client.call("lease/revoke", {"ID": lease}, NoContent)
        except EtcdError as error:
            if error.code != NOT_FOUND:
                raise

    def _leader_seen(self, answer: RangeAnswer) -> LeaderSeen:
        if not answer.kvs:
            return LeaderSeen(None, 0, 0)
        found = answer.kvs[0]
        if len(answer.kvs) != 1 or found.key != self.leader_key.encode():
            raise EtcdError("etcd: it answers with other keys than those asked for")
        leader = None
        if len(found.value) <= _MOST_LEADER_BYTES:
            try:
                leader = _read_leader(found.value)
            except msgspec.MsgspecError:
                leader = None
        if leader is not None and holds_control(leader.id + leader.address):
            leader = None
        return LeaderSeen(leader, found.create_revision, found.lease)


def _created(key: bytes, revision: int) -> dict[str, object]:
    """The condition that a key was made by this revision; 0: that there is none."""
    return {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": revision}


def _range_of(answer: TxnAnswer, number: int = 0) -> RangeAnswer:
    try:
        return answer.range_at(number)
    except MalformedAnswerError as error:
        raise EtcdError(f"etcd: {error}") from error


def _end_of(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`, which ends with '/'."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
