"""What brokers and operators ask a controller, and its answer, as values without a wire format.

Any thread. Names are RocketMQ's; numbers of the codes: remoting/request_code.py. Java's
`invokeTime`, the asker's clock, is left out: nothing may depend on it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from controller.group_state import GroupState
from remoting.response_code import ResponseCode

CONTROLLER_ITSELF: Final = -1
"""The broker id in an ElectMaster that the controller asks of itself."""

MAX_MEMBERS: Final = 1_000
"""Brokers of a group; no member of RocketMQ's or ours is told of more."""


class AlterSyncStateSet(NamedTuple):
    """1001: a master wants another set. The epochs are what the master takes for current."""

    cluster_name: str
    broker_name: str
    master_broker_id: int
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


class ElectMaster(NamedTuple):
    """1002: somebody wants a master; with designate_elect, that `broker_id` becomes it."""

    cluster_name: str
    broker_name: str
    broker_id: int
    designate_elect: bool = False


class RegisterBroker(NamedTuple):
    """1003: a broker with an id has started at `broker_address` (host:port)."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_address: str


class GetReplicaInfo(NamedTuple):
    """1004: who is the master, and who is in the set?"""

    cluster_name: str
    broker_name: str


class CleanBrokerData(NamedTuple):
    """1011: an operator removes brokers; without ids the whole group."""

    cluster_name: str
    broker_name: str
    broker_ids: frozenset[int]
    clean_living_broker: bool = False


class GetNextBrokerId(NamedTuple):
    """1012: which id could I apply for?"""

    cluster_name: str
    broker_name: str


class ApplyBrokerId(NamedTuple):
    """1013: a broker applies for an id."""

    cluster_name: str
    broker_name: str
    applied_broker_id: int
    register_check_code: str


Request = (
    AlterSyncStateSet
    | ElectMaster
    | RegisterBroker
    | GetReplicaInfo
    | CleanBrokerData
    | GetNextBrokerId
    | ApplyBrokerId
)


class Answer(NamedTuple):
    """The answer to any of them."""

    code: ResponseCode
    group: GroupState | None = None
    """The group as it is now; None: the answer names no master and no set."""
    next_broker_id: int = 0
    remark: str = ""
