"""One request and one group's state give the state after it and the answer. Pure; any thread.

Codes, the order of the checks and epochs are those of RocketMQ 5.3.3 (ReplicasInfoManager), so that
its brokers take this for the original; what differs, each time because Java's way leads to a hang
or a loss, is said at the function.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from controller.election import Liveness, choose_master
from controller.group_state import GroupState, Replica
from controller.requests import (
    CONTROLLER_ITSELF,
    MAX_MEMBERS,
    AlterSyncStateSet,
    Answer,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBroker,
    Request,
)
from remoting.response_code import ResponseCode as Code


class Decision(NamedTuple):
    """What a request does to its group."""

    group: GroupState | None
    """After it; the very object that was given if nothing changes."""
    answer: Answer
    """To be sent once `group` is stored."""
    notify: bool = False
    """Whether the living brokers are told of a change of master (1008)."""


def decide(
    group: GroupState | None, request: Request, liveness: Liveness, *, unclean: bool = False
) -> Decision:
    """unclean: enableElectUncleanMaster."""
    match request:
        case GetNextBrokerId():
            return Decision(group, Answer(Code.SUCCESS, None, group.next_broker_id if group else 1))
        case ApplyBrokerId():
            return _apply_broker_id(group, request)
        case RegisterBroker():
            return _register(group, request, liveness)
        case GetReplicaInfo():
            return _replica_info(group)
        case ElectMaster():
            return _elect(group, request, liveness, unclean=unclean)
        case AlterSyncStateSet():
            return _alter(group, request, liveness)
        case CleanBrokerData():
            return _clean(group, request, liveness)


def _refused(group: GroupState | None, code: Code, remark: str) -> Decision:
    return Decision(group, Answer(code, remark=remark))


def _apply_broker_id(known_group: GroupState | None, request: ApplyBrokerId) -> Decision:
    wanted, check_code = request.applied_broker_id, request.register_check_code
    group = known_group or GroupState(request.cluster_name, request.broker_name)
    known = group.replicas.get(wanted)
    if known is not None and known.register_check_code == check_code:
        return Decision(group, Answer(Code.SUCCESS))
    # Only what 1012 offers: an id that was cleaned away has an old bearer, who may come back.
    if wanted != group.next_broker_id:
        return _refused(
            known_group,
            Code.CONTROLLER_BROKER_ID_INVALID,
            f"broker id {wanted} is taken, ask 1012 again",
        )
    if len(group.replicas) >= MAX_MEMBERS:
        return _refused(
            group,
            Code.CONTROLLER_INVALID_REQUEST,
            f"{request.broker_name:.80} has {MAX_MEMBERS} brokers, the most that can be told of; "
            "clean those away that are gone (mqadmin cleanBrokerMetadata)",
        )
    address = check_code.partition(";")[0]
    return Decision(group.with_replica(wanted, Replica(address, check_code)), Answer(Code.SUCCESS))


def _register(group: GroupState | None, request: RegisterBroker, liveness: Liveness) -> Decision:
    """The answer names the master only if it is alive, as Java's does."""
    known = group.replicas.get(request.broker_id) if group else None
    if group is None or known is None:
        return _refused(
            group,
            Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"broker id {request.broker_id} of {request.broker_name} was not given to anyone",
        )
    if known.address != request.broker_address:
        moved = replace(known, address=request.broker_address)
        group = group.with_replica(request.broker_id, moved)
    named = group if liveness.master_lives(group) else None
    return Decision(group, Answer(Code.SUCCESS, named))


def _replica_info(group: GroupState | None) -> Decision:
    if group is None or not group.replicas:
        return _refused(group, Code.CONTROLLER_BROKER_METADATA_NOT_EXIST, "no such group")
    return Decision(group, Answer(Code.SUCCESS, group))


def _elect(
    group: GroupState | None, request: ElectMaster, liveness: Liveness, *, unclean: bool
) -> Decision:
    """Java writes one event for every vain try of its own, which raises the epoch each time; here
    only the first one does."""
    by_itself = request.broker_id == CONTROLLER_ITSELF
    if group is None or not (by_itself or request.broker_id in group.replicas):
        return _refused(
            group,
            Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"broker id {request.broker_id} of {request.broker_name} was not given to anyone",
        )
    choice = choose_master(group, request, liveness, unclean=unclean)
    if choice.stays:
        return Decision(group, Answer(Code.CONTROLLER_MASTER_STILL_EXIST, group))
    if choice.elected is not None:
        elected = group.with_master(choice.elected)
        return Decision(elected, Answer(Code.SUCCESS, elected), notify=True)
    if not by_itself:
        return _refused(group, Code.CONTROLLER_ELECT_MASTER_FAILED, "no member of the set is alive")
    if group.master_broker_id is not None:
        group = group.without_master()
    return Decision(group, Answer(Code.CONTROLLER_MASTER_NOT_AVAILABLE, group))


def _alter(group: GroupState | None, request: AlterSyncStateSet, liveness: Liveness) -> Decision:
    """Java refuses a set that is in force already. Here that is an answer: to a master whose first
    answer was lost, which would never learn of it; and one that names the current epoch gets a
    newer one for the same set, so that none of its requests still under way can change it."""
    if group is None:
        return _refused(None, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "no such group")
    wanted = request.sync_state_set
    if request.master_broker_id != group.master_broker_id:
        return _refused(
            group,
            Code.CONTROLLER_INVALID_MASTER,
            f"the master is {group.master_broker_id}, not {request.master_broker_id}",
        )
    if request.master_epoch != group.master_epoch:
        return _refused(
            group,
            Code.CONTROLLER_FENCED_MASTER_EPOCH,
            f"the master epoch is {group.master_epoch}, not {request.master_epoch}",
        )
    current = group.sync_state_set_epoch
    if wanted == group.sync_state_set and request.sync_state_set_epoch < current:
        return Decision(group, Answer(Code.SUCCESS, group))
    if request.sync_state_set_epoch != current:
        return _refused(
            group,
            Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"the set's epoch is {current}, not {request.sync_state_set_epoch}",
        )
    return _alter_members(group, wanted, liveness)


def _alter_members(group: GroupState, wanted: frozenset[int], liveness: Liveness) -> Decision:
    unknown = sorted(wanted - group.replicas.keys())
    if unknown:
        return _refused(group, Code.CONTROLLER_INVALID_REPLICAS, f"unknown broker ids {unknown}")
    # Members of old stay in the set unseen, or a set with two dead ones could not lose just one.
    dead = sorted(wanted - group.sync_state_set - liveness.alive.keys())
    if dead:
        return _refused(group, Code.CONTROLLER_BROKER_NOT_ALIVE, f"not alive: {dead}")
    if group.master_broker_id not in wanted:
        return _refused(
            group, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "the master is not in its set"
        )
    changed = group.with_sync_state_set(wanted)
    return Decision(changed, Answer(Code.SUCCESS, changed))


def _clean(group: GroupState | None, request: CleanBrokerData, liveness: Liveness) -> Decision:
    """Ids always count; Java ignores them when living brokers may be cleaned. Nobody is removed
    without whom no remaining broker has every message."""
    invalid = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if group is None or not group.replicas:
        return _refused(group, invalid, f"no such group: {request.broker_name}")
    ids = request.broker_ids or frozenset(group.replicas)
    living = sorted(ids & liveness.alive.keys())
    if living and not (request.broker_ids and request.clean_living_broker):
        return _refused(group, invalid, f"alive: {living}")
    remaining = group.replicas.keys() - ids
    if remaining and group.sync_state_set and not group.sync_state_set - ids:
        return _refused(group, invalid, "only they have every message; elect another one first")
    return Decision(group.without_replicas(ids), Answer(Code.SUCCESS))
