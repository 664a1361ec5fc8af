"""LinkClosedError: why a slave's link to its master was closed or could not be opened.

Pure data, raised by everything that HAClient runs for one link (connecting, starting the log,
receiving, reporting) and turned into a log line and a counter there. It knows no sockets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ha.refusals import RefusalReason

if TYPE_CHECKING:
    import ssl

    # numpy, which a master does not need, takes longer to import than the rest of its process.
    from ha.record_validator import BadRecord

TLS_WAY_OUT: Final = (
    "haTlsEnable must be the same on both sides, and each must trust the other's certificate"
)


class LinkClosedError(Exception):
    """The link is closed. `reason` is counted unless None; the text names cause and remedy.
    `is_passing`: the next link, opened at once, probably has not the same trouble."""

    def __init__(
        self, reason: RefusalReason | None, text: str, *, is_passing: bool = False
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.is_passing = is_passing


def tls_failure(error: ssl.SSLError) -> LinkClosedError:
    """The error for a TLS failure on an established link."""
    return LinkClosedError(RefusalReason.TLS, f"TLS failed: {error.reason or error}; {TLS_WAY_OUT}")


def wrong_checksum(what: str, offset: int) -> LinkClosedError:
    """The error for a frame whose checksum is wrong: nothing of it is published."""
    return LinkClosedError(
        RefusalReason.BAD_CHECKSUM,
        f"{what} for offset {offset} came with a wrong checksum: damaged in transit; "
        "receiving again from the last good frame. If it recurs, check the network (offloading, "
        "middleboxes) and both machines' memory",
        is_passing=True,
    )


def bad_record(bad: BadRecord, phy_offset: int) -> LinkClosedError:
    """The error for whole frames that end the published log at `phy_offset`."""
    text = f"what the master sent for offset {phy_offset} cannot be published: {bad.text}; "
    if bad.came_before:
        text += (
            "the same bytes came twice, so the master's own log is damaged there: the log ends "
            "here until it sends others; restart the master with a good copy of its store, or "
            "promote this slave (docs/replication.md)"
        )
    else:
        text += "nothing of it was taken, and it is asked for again"
    reason = RefusalReason.UNEXPECTED_RECORD if bad.is_record else RefusalReason.BAD_RECORD
    return LinkClosedError(reason, text, is_passing=not bad.came_before)
