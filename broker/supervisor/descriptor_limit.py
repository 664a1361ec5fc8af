"""How many descriptors this broker may have: as many as it is permitted, like the original's JVM.

A client is a descriptor; most shells give a process 1,024 and permit it many more. Run by the
supervisor before its children start: they inherit the limit. (`select.select`, which cannot look
at large numbers, is used nowhere here.)
"""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

_FEW: Final = 8_192
"""A smaller hard limit is worth a warning: the systemd unit asks for 655,350."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one; the limit in force. What is refused is logged."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("the limit of %s descriptors could not be raised: %s", soft, error)
    if soft != resource.RLIM_INFINITY and soft < _FEW:
        log.warning(
            "this broker may have %s descriptors, one for each client and each file: more "
            "clients than that cannot connect; raise the hard limit (ulimit -Hn, or LimitNOFILE "
            "of systemd)",
            soft,
        )
    return soft
