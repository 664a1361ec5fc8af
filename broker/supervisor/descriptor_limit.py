"""Raises the limit of file descriptors to the maximum permitted, as RocketMQ's JVM does.

Each client needs a descriptor. Most shells set a soft limit of 1,024 and a much larger hard limit.
Called by the supervisor before its children start: they inherit the limit. (`select.select`, which
cannot handle large descriptor numbers, is not used in this project.)
"""

from __future__ import annotations

import logging
import resource
from typing import Final

log = logging.getLogger(__name__)

_FEW: Final = 8_192
"""A smaller hard limit is worth a warning: the systemd unit asks for 655,350."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one; returns the resulting limit. A failure is logged."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
        except (OSError, ValueError) as error:
            log.warning("could not raise the limit of %s file descriptors: %s", soft, error)
    if soft != resource.RLIM_INFINITY and soft < _FEW:
        log.warning(
            "this broker may open only %s file descriptors, one for each client and file; "
            "further clients cannot connect; raise the hard limit (ulimit -Hn, or LimitNOFILE "
            "of systemd)",
            soft,
        )
    return soft
