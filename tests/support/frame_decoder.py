"""FrameDecoder: what a peer sends, as commands; for tests that play the other side of a socket.

It keeps bytes and decodes; where a frame ends is told by the product's own splitter.
"""

from __future__ import annotations

from collections import deque

from remoting.errors import FrameError
from remoting.frame import split_frames
from remoting.remoting_codec import decode_command
from remoting.remoting_command import RemotingCommand


class FrameDecoder:
    """A byte stream as commands. After a FrameError every later call raises it again."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._found: deque[RemotingCommand] = deque()
        self._failure: str | None = None

    @property
    def buffered(self) -> int:
        """Bytes of a frame that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the peer; after a FrameError they are dropped."""
        if self._failure is not None:
            return
        self._rest += data
        try:
            with memoryview(self._rest) as view:
                used = split_frames(view, len(view), _take, self._found)
        except FrameError as error:
            self._failure = str(error)
        else:
            del self._rest[:used]

    def next_command(self) -> RemotingCommand | None:
        """The next whole frame, decoded; None when it is not all here yet.

        Raises FrameError, after the commands before it, when the bytes can be no frame.
        """
        if self._found:
            return self._found.popleft()
        if self._failure is not None:
            raise FrameError(self._failure)
        return None


def _take(
    found: deque[RemotingCommand], serialize_type: int, header: bytes, body: memoryview
) -> bool:
    found.append(decode_command(header, serialize_type, bytes(body)))
    return True
