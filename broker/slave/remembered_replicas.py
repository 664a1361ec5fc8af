"""RememberedReplicas: which replicas this master had, by the file that process `ha` keeps.

Process `remoting` on a master; reads ha/replica_memory.py's file anew at each call. Stateless.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from broker.slave.group_members import MemberAddress
from ha.replica_memory import read_replica_ids


class RememberedReplicas:
    """Implements KnownReplicas."""

    def __init__(self, path: Path, is_proved: Callable[[MemberAddress], bool]) -> None:
        self._path = path
        self.is_proved = is_proved

    def absent(self, members: list[MemberAddress]) -> list[str]:
        """KnownReplicas. A file that cannot be read may name any."""
        try:
            known = read_replica_ids(self._path)
        except (OSError, ValueError) as error:
            return [f"a replica of {self._path} ({error})"]
        there = {str(member.broker_id) for member in members}
        return sorted(name for name in known if name.rpartition(":")[2] not in there)
