"""MasterHello: what a master says about itself before it sends the first byte of its log.

Pure data: HAClient makes one for each link that it opens, and whoever decides on the word of a
master (starting over, taking its tables) reads it. It knows no bytes and no sockets; the layout is
in handshake.py.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MasterHello:
    """One master, at the moment when the link to it was opened."""

    min_phy_offset: int
    """Where its log begins; -1: it did not say (a master that speaks RocketMQ's protocol only)."""
    max_phy_offset: int
    """Where its log ends; -1 like above."""
    broker_address: str | None
    """ "ip:port" of its remoting port, as its registration names it; None: it did not say."""
    is_proved: bool
    """It proved haSharedSecretFile's secret, or showed a certificate that was accepted. False: the
    values are the word of whoever answers at that address."""
