"""HaEnvironment and LinkIdentity: what the services of the room are given by whoever builds them.

Pure data, made once a process by HAService; read by all its threads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ha.ha_config import HaConfig
from ha.handshake import OwnIdentity
from ha.selector_factory import SelectorFactory
from ha.trusted_peers import TrustedPeers
from ipc.clock import Clock
from ipc.service_thread import FailureHandler

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True)
class HaEnvironment:
    """What every service needs: the settings, the time, how it sleeps, and whom its death of a bug
    is reported to."""

    config: HaConfig
    clock: Clock
    new_selector: SelectorFactory
    on_failure: FailureHandler | None = None


@dataclass(frozen=True, slots=True)
class LinkIdentity:
    """One end of a link: what it says and proves of itself, and whom it believes."""

    own: OwnIdentity
    trusted: TrustedPeers
    tls: ssl.SSLContext | None
    """None for plain connections."""

    @property
    def can_prove(self) -> bool:
        """Whether a peer at an unknown address could prove that it belongs here."""
        return self.own.secret is not None or self.tls is not None
