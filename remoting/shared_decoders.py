"""decoder_of, learnt: types of msgspec, for threads that may be the first to use them.

msgspec learns the fields of a type at its first use: by a decoder, decode or convert. While it
does, a second thread that uses the type finds a null pointer, and the process ends (SIGSEGV): so
only one thread learns at a time. Types that a module knows have their decoders made at its import,
or are `learnt` there; no function calls `msgspec.json.decode` with a type
(tests/test_architecture.py).

Any thread; knows no type. Tested by tests/remoting/test_shared_decoders.py.
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_lock: Final = threading.Lock()
_decoders: Final[dict[tuple[type, bool], msgspec.json.Decoder[Any]]] = {}


def decoder_of(kind: type[T], *, strict: bool = True) -> msgspec.json.Decoder[T]:
    """The same at each call. strict: msgspec's."""
    with _lock:
        found = _decoders.get((kind, strict))
        if found is None:
            found = _decoders[kind, strict] = msgspec.json.Decoder(kind, strict=strict)
        return found


def learnt(kind: type[T]) -> type[T]:
    """The same type, for `msgspec.convert` by any thread."""
    decoder_of(kind)
    return kind
