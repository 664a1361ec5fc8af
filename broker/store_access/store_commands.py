"""StoreCommands: what requests have process `store` do with its files, over the command channel.

Called by pool threads of `remoting`; each command returns when it has been executed, and raises
OSError or TimeoutError if `store` does not respond. Knows no request code.

Tested by tests/broker/store_access/test_store_access.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ipc.command_channel import CommandClient
from ipc.queue_table import QueueTableReader
from remoting.lite_names import to_lmq_name
from store.lmq_places import is_lmq

_COMMAND_TIMEOUT_MS: Final = 4_000


class StoreCommands:
    """See the module."""

    def __init__(
        self,
        commands: CommandClient,
        table: QueueTableReader,
        *,
        before_delete: Callable[[str], int],
        after_delete: Callable[[str, bool], None],
    ) -> None:
        """before_delete blocks a topic's sends and returns the log's end; after_delete (topic,
        whether its queues were deleted) unblocks them. Both act on the loop."""
        self._commands = commands
        self._table = table
        self._before_delete = before_delete
        self._after_delete = after_delete
        self.on_deleted: Callable[[str], None] = lambda _topic: None
        """Hears of each topic and light queue whose queues were deleted; pool threads."""

    def delete_topic_queues(self, topic: str) -> None:
        """Delete every consume queue of `topic`, and those of its lite topics first; raises
        CommandError.

        Existing records of the topic are dispatched first, so that they do not recreate the queues.
        Sends are blocked meanwhile; the next one starts at queue offset 0.
        """
        for lmq in self._lite_queues(topic):
            self.delete_unless(lmq, lambda: False)
        self.delete_unless(topic, lambda: False)

    def delete_unless(self, topic: str, is_in_use: Callable[[], bool]) -> None:
        """The same of `topic` alone, unless `is_in_use` says so once its sends are blocked."""
        barrier = self._before_delete(topic)
        deleted = False
        try:
            if is_in_use():
                return
            self._commands.call("delete_topic", _COMMAND_TIMEOUT_MS, topic=topic, barrier=barrier)
            deleted = True
        finally:
            self._after_delete(topic, deleted)
        self.on_deleted(topic)

    def _lite_queues(self, topic: str) -> list[str]:
        prefix = to_lmq_name(topic, "")
        return [name for name, _, _ in self._table if name.startswith(prefix)]

    def clean_unused_topic(self, retained: Sequence[str]) -> None:
        """Delete the queues of topics that are not in `retained`, but for light queues, which are
        in no table; raises CommandError.

        The list may be long, so the queues to be deleted are determined here and sent one by one.
        """
        keep = set(retained)
        for topic in {name for name, _, _ in self._table if not is_lmq(name)} - keep:
            self.delete_topic_queues(topic)

    def clean_expired_consume_queue(self) -> None:
        """Delete queue files below the commit log's start; raises CommandError."""
        self._commands.call("clean_consume_queue", _COMMAND_TIMEOUT_MS)

    def delete_expired_commit_log(self) -> None:
        """Delete expired commit log files now; raises CommandError."""
        self._commands.call("clean_commit_log", _COMMAND_TIMEOUT_MS)
