"""How the HA threads get their selectors: from the composition root, which knows the library.

The room may not import `remoting`, whose seam is the one place that chooses it
(remoting/selector_seam.py). The event masks are the standard library's, which all kinds share.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable

EVENT_READ = selectors.EVENT_READ
EVENT_WRITE = selectors.EVENT_WRITE

SelectorFactory = Callable[[], selectors.BaseSelector]
"""Makes one selector; each thread asks for its own and closes it."""
