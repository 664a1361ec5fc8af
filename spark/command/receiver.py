"""Who is told of reports, in which format, and when: what `--notify…` says, checked.

Plain values for spark/command/arguments.py and spark/command/notifier.py; starts and posts nothing.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from spark.command.alerts import api_address
from spark.command.webhook import AddressError, Webhook

JSON: Final = "json"
ALERTMANAGER: Final = "alertmanager"
SLACK: Final = "slack"
FORMATS: Final = (JSON, ALERTMANAGER, SLACK)
ALWAYS: Final = "always"
CHANGE: Final = "change"
OCCASIONS: Final = (ALWAYS, CHANGE)


@dataclass(frozen=True, slots=True)
class Receiver:
    """An address; `format` is one of FORMATS, `occasion` of OCCASIONS."""

    webhook: Webhook
    format: str = JSON
    occasion: str = ALWAYS

    @property
    def name(self) -> str:
        """For the file of what was told. Of an address with secrets it has scheme, host and 16 bits
        of a digest: they tell two addresses apart, and are too few to check a guess with."""
        digest = hashlib.sha256(self.webhook.address.encode(errors="replace")).hexdigest()[:4]
        return f"{self.format} {self.webhook.shown} {digest}"


def receiver_of(address: str, asked_format: str | None, occasion: str | None) -> Receiver:
    """Of `https://…` or, with the format in front of it, `slack+https://…`.

    Raises AddressError, whose text does not repeat the address.
    """
    prefix, separator, rest = address.partition("+")
    if not separator or prefix not in FORMATS:
        prefix, rest = "", address
    if prefix and asked_format not in (None, prefix):
        raise AddressError(f"begins with {prefix}+, but --notify-format is {asked_format}")
    found = prefix or asked_format or JSON
    webhook = Webhook(rest)
    if found == ALERTMANAGER:
        webhook = Webhook(api_address(webhook.address))
    return Receiver(webhook, found, occasion or ALWAYS)
