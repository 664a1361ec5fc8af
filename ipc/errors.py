"""What can go wrong in the memory that processes share.

Any thread raises it. Texts say what is full and what follows from it.
"""

from __future__ import annotations


class SharedMemoryFullError(Exception):
    """A table in shared memory has no room for another row or series."""
