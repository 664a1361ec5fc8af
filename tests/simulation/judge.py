"""What must hold at every moment, and at the end. Raises Violation, which names what broke."""

from __future__ import annotations

from controller.group_state import GroupState

Record = tuple[int, int]
"""A message's number, its queue offset."""


class Violation(AssertionError):
    """A promise that was broken."""


class Judge:
    """Sees everything; belongs to nobody."""

    def __init__(self, *, safe: bool, one_at_a_time: bool) -> None:
        """safe: SEND_OK and what consumers saw must last; one_at_a_time: no two masters take puts
        at the same time."""
        self.safe = safe
        self.one_at_a_time = one_at_a_time
        self.answered: set[int] = set()
        self.seen: list[int] = []
        self._leaders: dict[int, tuple[str, int]] = {}
        self._newest_put_epoch = 0
        self.elections = 0

    def swapped(self, old: GroupState | None, new: GroupState | None) -> None:
        """A group was stored."""
        if old is None:
            return
        if new is None or new.next_broker_id < old.next_broker_id:
            raise Violation(f"ids may be given again: {old} {new}")
        if new.master_epoch < old.master_epoch:
            raise Violation(f"the master epoch fell from {old.master_epoch} to {new.master_epoch}")
        if new.sync_state_set_epoch < old.sync_state_set_epoch:
            raise Violation(f"the set's epoch fell: {old} {new}")
        if new.master_epoch == old.master_epoch and new.master_broker_id != old.master_broker_id:
            raise Violation(f"two masters in epoch {new.master_epoch}")
        same_set_epoch = new.sync_state_set_epoch == old.sync_state_set_epoch
        if same_set_epoch and new.sync_state_set != old.sync_state_set:
            raise Violation(f"two sets in epoch {new.sync_state_set_epoch}")
        if new.master_epoch > old.master_epoch + 1:
            raise Violation("an epoch was left out")
        still_none = new.master_broker_id is None and old.master_broker_id is None
        if still_none and new.master_epoch != old.master_epoch:
            raise Violation("one loss was counted twice")
        if new.master_broker_id is not None and new.master_broker_id not in new.replicas:
            raise Violation(f"broker id {new.master_broker_id} is nobody's")

    def led(self, name: str, life: int, epoch: int) -> None:
        """A broker has opened its log for puts."""
        before = self._leaders.setdefault(epoch, (name, life))
        if before != (name, life):
            raise Violation(f"epoch {epoch} has two masters: {before} and {(name, life)}")
        self.elections += 1

    def took_role(self, name: str, old_epoch: int, epoch: int) -> None:
        """A broker takes a role in `epoch`; its last one in this life was in `old_epoch`."""
        if epoch <= old_epoch:
            raise Violation(f"{name} goes from epoch {old_epoch} to {epoch}")

    def joined(
        self, name: str, before: list[Record], now: list[Record], master: list[Record]
    ) -> None:
        """A slave has cut its log to what it has in common with its master's."""
        kept = len(now)
        if master[:kept] != now:
            raise Violation(f"{name} goes on behind what its master does not have: {now} {master}")
        if kept < len(before) and kept < len(master) and before[kept] == master[kept]:
            raise Violation(f"{name} cuts what its master has, too, at {kept}")

    def put_taken(self, epoch: int) -> None:
        """A master of this epoch has taken a put."""
        if self.one_at_a_time and epoch < self._newest_put_epoch:
            raise Violation(f"a put in epoch {epoch} after one in {self._newest_put_epoch}")
        self._newest_put_epoch = max(self._newest_put_epoch, epoch)

    def showed(self, name: str, log: list[Record], start: int, end: int) -> None:
        """A broker lets consumers read [start, end)."""
        if not self.safe:
            return
        seen = self.seen
        for at in range(start, end):
            if at == len(seen):
                seen.append(log[at][0])
            elif seen[at] != log[at][0]:
                raise Violation(f"{name} shows {log[at][0]} at {at}, where {seen[at]} was seen")

    def ended(self, logs: dict[str, list[Record]]) -> None:
        """Everything was healed and has calmed down."""
        (first, log), *others = logs.items()
        for name, other in others:
            if other != log:
                raise Violation(f"the logs of {first} and {name} differ: {log} {other}")
        if [offset for _, offset in log] != list(range(len(log))):
            raise Violation(f"queue offsets are doubled or missing: {log}")
        if not self.safe:
            return
        numbers = [number for number, _ in log]
        if numbers[: len(self.seen)] != self.seen:
            raise Violation("a record that consumers had seen was cut off")
        missing = sorted(self.answered - set(numbers))
        if missing:
            raise Violation(f"answered SEND_OK, and lost: {missing}")
        if len(set(numbers)) != len(numbers):
            raise Violation("a message is there twice")
