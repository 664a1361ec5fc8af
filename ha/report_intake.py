"""ReportIntake: what one slave's connection delivers, as reports that count.

Pure; owned by whoever reads the connection: ReadSocketService, or LentLink while it is lent. A
report may be split over several reads; of several good ones the last counts.
"""

from __future__ import annotations

from ha.refusals import RefusalReason
from ha.reports import DamagedReportError, Reports
from ha.slave_progress import SlaveProgress


class ReportIntake:
    """See the module. `progress` is told of each report."""

    def __init__(self, reports: Reports, progress: SlaveProgress, rest: bytes = b"") -> None:
        """rest: what came of a report before this object was made."""
        self.rest = rest
        """The part of a report that has come."""
        self._reports = reports
        self._progress = progress
        self.reason: RefusalReason | None = None
        """Why the connection must be closed; nothing may be taken after that."""
        self.text = ""

    def take(self, data: bytes) -> bool:
        """Whether reports came, and all are good. False with a `reason`: one was wrong."""
        try:
            reports, self.rest = self._reports.take(self.rest + data)
        except DamagedReportError as error:
            self.reason, self.text = RefusalReason.BAD_CHECKSUM, str(error)
            return False
        for offset in reports:
            if not self._is_good(offset):
                return False
        return bool(reports)

    def _is_good(self, offset: int) -> bool:
        progress = self._progress
        sent, acknowledged = progress.sent_offset, progress.ack_offset
        self.reason = progress.report(offset)
        if self.reason is None:
            return True
        self.text = (
            f"report {offset}, after {acknowledged} was acknowledged and bytes up to {sent} were "
            "sent: it is not a slave of this log, or its log was changed; it must compare again"
        )
        return False
