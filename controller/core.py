"""A controller without sockets, clock or store: events in, `Ready` out. One thread.

Leadership is a lease: it counts from when the request for it left, so that a late answer prolongs
nothing, and it ends here a margin before it ends in the store. Every write carries the fence of its
leadership, so that a controller that does not know yet that it was replaced changes nothing.
Not leader: everything is answered with 2007, heartbeats are still taken. A group whose stored value
cannot be read, or is older than the one known here, is refused by name, never taken for an empty
one; the others are served.

Tested by tests/controller/test_given_up.py, tests/controller/test_unreadable_groups.py and
tests/simulation/test_pitfalls.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from controller.election import Liveness, asked_by_controller
from controller.events import (
    NO_CHANNEL,
    Asked,
    ChannelClosed,
    Event,
    Followed,
    LeadershipGranted,
    LeadershipLost,
    LeadershipRenewed,
    Loaded,
    Notice,
    Outcome,
    Ready,
    Stored,
    Swap,
    SwapEnded,
    Tick,
    Unreadable,
)
from controller.group_state import GroupState
from controller.lane import NO_TICKET, Doing, Lane, Waiting, drop_unwanted
from controller.live_brokers import Heartbeat, LiveBrokers
from controller.requests import Answer
from controller.state_machine import decide
from remoting.response_code import ResponseCode

_LEAST_PAUSE_MS: Final = 1_000
"""Ticks come once a second: what is no longer than that between two events is no pause."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """RocketMQ's keys where it has them; milliseconds."""

    enable_elect_unclean_master: bool = False
    notify_broker_role_changed: bool = True
    elect_on_channel_closed: bool = True
    """A closed connection of the master is taken for its death at once, as RocketMQ does; else only
    silence is."""
    scan_inactive_master_interval_ms: int = 5_000
    warm_up_ms: int = 10_000
    """Brokers' heartbeat timeout: so long a new leader, or one that was itself stopped, declares
    nobody lost."""
    lease_ms: int | None = None
    """How long the store keeps a leadership that is not renewed; None: for ever."""
    lease_margin_ms: int = 1_000
    asker_timeout_ms: int = 3_000
    """How long whoever asks waits for an answer: RocketMQ's brokers 3 s."""


def _why_older(found: Stored, known: Stored) -> str:
    """What is wrong if the store has less than this controller has seen in it."""
    if found.version >= known.version:
        return ""
    what = f"version {found.version}" if found.version else "nothing"
    return (
        f"the store held version {known.version} of this group and holds {what} now: it was "
        "removed, or the store was put back to an older state, and epochs that brokers have would "
        "be given twice; put it back, or, if this was meant, stop all controllers and brokers of "
        "the group before the controllers are started again"
    )


def _needs_master(group: GroupState, liveness: Liveness) -> bool:
    return bool(group.sync_state_set) and not (
        liveness.master_presumed_alive or liveness.master_lives(group)
    )


class ControllerCore:
    """Owned by one thread, which gives it one event after the other."""

    def __init__(self, settings: ControllerSettings) -> None:
        self._settings = settings
        self._live = LiveBrokers()
        self._lanes: dict[str, Lane] = {}
        self._fence: int | None = None
        self._newest_fence = 0
        self._lease_until_ms = 0
        self._followed: dict[str, Stored] = {}
        """The groups as last seen, while another controller leads."""
        self._warm_at_ms: int | None = None
        """Until then the master of a group is taken for alive; None: nobody was listened to yet."""
        self._ended: set[int] = set()
        """Connections that have ended since the last tick: whatever came over them is dropped with
        it, as peers may hang up more often than all that waits can be looked through."""
        self._scanned_ms = 0
        self._swap_number = 0
        self._last_ms: int | None = None

    def is_leader(self, now_ms: int) -> bool:
        """Whether this controller may answer for the groups."""
        if self._fence is None:
            return False
        return self._settings.lease_ms is None or now_ms < self._lease_until_ms

    def use(self, settings: ControllerSettings) -> None:
        """From now on these count."""
        self._settings = settings

    # What others ask

    def has_room_for(self, broker_name: str, most: int) -> bool:
        """Whether the group exists, or may be made where there are `most` groups at most. One that
        is being stored is there already: a store may be slow, and many may ask meanwhile."""
        return broker_name in self._lanes or len(self._lanes) < most

    def survey(self, now_ms: int) -> tuple[list[tuple[GroupState, Liveness]], int]:
        """All groups that it leads, with who of them is alive, and for how many milliseconds nobody
        is taken for dead yet."""
        groups = [
            (lane.stored.group, self._liveness(name, now_ms))
            for name, lane in self._lanes.items()
            if lane.stored.group is not None
        ]
        return groups, max(0, (self._warm_at_ms or 0) - now_ms)

    def find(self, broker_name: str, now_ms: int) -> tuple[GroupState, Liveness] | None:
        """A group as it is stored, or, where another controller leads, was when it was read last;
        and who of it is alive. None: there is none, or it is not known."""
        lane = self._lanes.get(broker_name)
        stored = self._followed.get(broker_name) if lane is None else lane.stored
        if stored is None or stored.group is None:
            return None
        return stored.group, self._liveness(broker_name, now_ms)

    def step(self, event: Event, now_ms: int) -> Ready:
        """Take one event. What `Ready` says is done before the next one is given."""
        doing = Doing()
        self._notice_own_pause(now_ms)
        if self._fence is not None and not self.is_leader(now_ms):
            self._step_down(doing)
        match event:
            case Heartbeat():
                self._live.heard(event, now_ms)
            case Asked():
                self._asked(event, now_ms, doing)
            case Tick():
                drop_unwanted(
                    self._lanes.values(), lambda one: self._is_given_up(one, now_ms), doing
                )
                self._ended.clear()
                self._scan(now_ms, doing)
            case ChannelClosed():
                self._closed(event, now_ms, doing)
            case SwapEnded():
                self._swap_ended(event, now_ms, doing)
            case Loaded() | Unreadable():
                self._loaded(event, now_ms, doing)
            case LeadershipGranted():
                self._granted(event, now_ms)
            case LeadershipRenewed():
                self._prolong(event.sent_ms)
            case LeadershipLost():
                self._step_down(doing)
            case Followed() if self._fence is None:
                self._follow(event.groups)
                if self._warm_at_ms is None:
                    self._warm_at_ms = now_ms + self._settings.warm_up_ms
        return doing.ready()

    # Leadership

    def _granted(self, event: LeadershipGranted, now_ms: int) -> None:
        """One that comes twice, or late, takes nothing back: neither what was stored since nor who
        waits for an answer."""
        if event.fence == self._fence:
            self._prolong(event.sent_ms)
            return
        if event.fence < self._newest_fence:
            return
        self._fence = self._newest_fence = event.fence
        self._lease_until_ms = 0
        self._prolong(event.sent_ms)
        self._lanes = {name: Lane(stored, deque()) for name, stored in event.groups.items()}
        for name, known in self._followed.items():
            found = self._lanes.setdefault(name, Lane(Stored(0, None), deque()))
            found.unreadable = _why_older(found.stored, known)
            if found.unreadable:
                # Each scan reads it again: what was known has to outlast that.
                found.stored = known
        for name, reason in event.unreadable.items():
            known = self._followed.get(name, Stored(0, None))
            self._lanes[name] = Lane(known, deque(), unreadable=reason)
        self._followed = {}
        self._warm_at_ms = now_ms + self._settings.warm_up_ms

    def _follow(self, groups: Mapping[str, Stored]) -> None:
        """Keep the newest version of each that was ever seen: a store that was put back to an older
        state shows by it once this controller leads."""
        for name, stored in groups.items():
            known = self._followed.get(name)
            if known is None or stored.version >= known.version:
                self._followed[name] = stored

    def _prolong(self, sent_ms: int) -> None:
        if self._settings.lease_ms is not None:
            until = sent_ms + self._settings.lease_ms - self._settings.lease_margin_ms
            self._lease_until_ms = max(self._lease_until_ms, until)

    def _step_down(self, doing: Doing) -> None:
        if self._fence is None:
            return
        self._fence = None
        self._followed = {name: lane.stored for name, lane in self._lanes.items()}
        for lane in self._lanes.values():
            for waiting in lane.waiting:
                doing.reply(waiting.ticket, Answer(ResponseCode.CONTROLLER_NOT_LEADER))
        self._lanes = {}

    def _notice_own_pause(self, now_ms: int) -> None:
        """Whoever did not run itself has heard from nobody, and judges nobody by that."""
        warm_up_ms = self._settings.warm_up_ms
        pause_ms = max(warm_up_ms // 2, _LEAST_PAUSE_MS)
        if self._last_ms is not None and now_ms - self._last_ms > pause_ms:
            self._warm_at_ms = max(self._warm_at_ms or 0, now_ms + warm_up_ms)
        self._last_ms = now_ms

    # Requests, one group at a time

    def _asked(self, event: Asked, now_ms: int, doing: Doing) -> None:
        if not self.is_leader(now_ms):
            doing.reply(event.ticket, Answer(ResponseCode.CONTROLLER_NOT_LEADER))
            return
        name = event.request.broker_name
        lane = self._lanes.get(name) or Lane(Stored(0, None), deque())
        until_ms = now_ms + self._settings.asker_timeout_ms
        lane.waiting.append(Waiting(event.ticket, event.request, event.channel, until_ms))
        self._lanes[name] = lane
        self._serve(name, lane, now_ms, doing)
        if not (lane.waiting or lane.unreadable) and lane.stored == Stored(0, None):
            # A name that nobody has: strangers' names are not collected.
            del self._lanes[name]

    def _is_given_up(self, waiting: Waiting, now_ms: int) -> bool:
        """Whether nobody waits for its answer."""
        is_ended = waiting.channel in self._ended and waiting.channel != NO_CHANNEL
        return is_ended or waiting.is_given_up(now_ms)

    def _serve(self, name: str, lane: Lane, now_ms: int, doing: Doing) -> None:
        """Answer what waits, up to the first request that changes the group."""
        if lane.unreadable:
            lane.refuse_all(doing)
        while lane.waiting and not (lane.swapped or lane.loading or lane.barred):
            first = lane.waiting[0]
            if self._is_given_up(first, now_ms):
                doing.reply(lane.take_first().ticket, first.last_word)
                continue
            group = lane.stored.group
            decision = decide(
                group,
                first.request,
                self._liveness(name, now_ms),
                unclean=self._settings.enable_elect_unclean_master,
            )
            if decision.group is group or decision.group is None:
                lane.take_first()
                doing.reply(first.ticket, decision.answer)
            else:
                lane.swapped = decision
                self._swap(name, lane, decision.group, doing)

    def _swap(self, name: str, lane: Lane, group: GroupState | None, doing: Doing) -> None:
        assert self._fence is not None
        self._swap_number += 1
        lane.swap_number = self._swap_number
        doing.swaps.append(Swap(name, self._swap_number, lane.stored.version, self._fence, group))

    def _swap_ended(self, event: SwapEnded, now_ms: int, doing: Doing) -> None:
        lane = self._lanes.get(event.broker_name)
        if lane is None or lane.swap_number != event.number:
            return
        decision, lane.swapped, lane.swap_number = lane.swapped, None, 0
        if event.outcome is Outcome.FENCED:
            self._step_down(doing)
        elif event.outcome is Outcome.DONE and decision is None:
            lane.stored, lane.barred = Stored(event.version, lane.stored.group), False
            self._serve(event.broker_name, lane, now_ms, doing)
        elif event.outcome is Outcome.DONE and decision is not None:
            lane.stored = Stored(event.version, decision.group)
            doing.reply(lane.take_first().ticket, decision.answer)
            if decision.notify and decision.group and self._settings.notify_broker_role_changed:
                addresses = self._live.addresses(event.broker_name, now_ms)
                doing.sends += [Notice(one, decision.group) for one in addresses.values()]
            self._serve(event.broker_name, lane, now_ms, doing)
        else:
            lane.loading = True
            if event.outcome is Outcome.UNKNOWN:
                lane.barred = True
                if decision is not None:
                    lane.waiting[0] = lane.waiting[0]._replace(was_tried=True)
            doing.loads.append(event.broker_name)

    def _loaded(self, event: Loaded | Unreadable, now_ms: int, doing: Doing) -> None:
        lane = self._lanes.get(event.broker_name)
        if lane is None or not lane.loading:
            return
        lane.loading = False
        if isinstance(event, Unreadable):
            lane.unreadable = event.reason
        else:
            lane.unreadable = _why_older(event.stored, lane.stored)
        if isinstance(event, Unreadable) or lane.unreadable:
            lane.refuse_all(doing)
            return
        lane.stored = event.stored
        if lane.barred:
            self._swap(event.broker_name, lane, event.stored.group, doing)
        self._serve(event.broker_name, lane, now_ms, doing)

    # Liveness

    def _liveness(self, name: str, now_ms: int) -> Liveness:
        is_new = self._warm_at_ms is None or now_ms < self._warm_at_ms
        return Liveness(self._live.alive(name, now_ms), is_new)

    def _closed(self, event: ChannelClosed, now_ms: int, doing: Doing) -> None:
        self._ended.add(event.channel)
        if not self._settings.elect_on_channel_closed:
            return
        for gone in self._live.closed(event.channel):
            self._replace_dead_master(gone.broker_name, now_ms, doing)

    def _scan(self, now_ms: int, doing: Doing) -> None:
        if now_ms - self._scanned_ms < self._settings.scan_inactive_master_interval_ms:
            return
        self._scanned_ms = now_ms
        self._live.forget_silent(now_ms)
        for name, lane in list(self._lanes.items()):
            self._replace_dead_master(name, now_ms, doing)
            if lane.unreadable and not lane.loading:
                lane.loading = True
                doing.loads.append(name)

    def _replace_dead_master(self, name: str, now_ms: int, doing: Doing) -> None:
        """Ask for an election if the group has no living master; a loss counts once."""
        lane = self._lanes.get(name)
        if lane is None or lane.elects or not self.is_leader(now_ms):
            return
        group = lane.stored.group
        if group is not None and _needs_master(group, self._liveness(name, now_ms)):
            # Before all that waits: brokers who ask without a pause put no election off.
            place = 0 if lane.swapped is None else 1
            lane.waiting.insert(place, Waiting(NO_TICKET, asked_by_controller(group)))
            lane.elects = True
            self._serve(name, lane, now_ms, doing)
