"""What can go wrong in the store, as exceptions. Texts name the problem, the place and the remedy.

Any thread raises them. They know no response code and no exit code: broker/ maps them.
"""

from __future__ import annotations


class StoreError(Exception):
    """Something is wrong with the store's files, settings or a message given to it."""


class MessageIllegalError(StoreError):
    """The message given to the store breaks a limit or contradicts itself (MESSAGE_ILLEGAL)."""


class QueueTableFullError(StoreError):
    """The message would make a queue, and no more of them can be read."""


class RecordDamagedError(StoreError):
    """Bytes in a store file are not what their place says they should be."""


class WrongFileSizeError(StoreError):
    """A store file's length is not the configured one ("length not matched" of RocketMQ)."""


class DiskFullError(StoreError):
    """A file could not be allocated because its partition is full."""


class QueueDamagedError(StoreError):
    """A consume queue unit does not name its record; it is being rebuilt from the log."""


class DispatchStoppedError(StoreError):
    """The service that dispatches records again is to stop: the rest is found again after the next
    start, or by readers."""


class StoreLockedError(StoreError):
    """Another broker, ours or a Java one, works on the store directory."""


class FlushFailedError(StoreError):
    """fdatasync failed: what the disk holds is unknown. Never retried; the process must end."""
