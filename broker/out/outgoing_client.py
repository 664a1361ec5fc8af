"""The remoting client of process `remoting` for calls to name servers and other brokers.

Created once, by the controller. The requests sent over it are in broker_outer_api.py.
"""

from __future__ import annotations

from broker.settings.startup_options import StartupOptions
from remoting.client_tls import ClientTls
from remoting.remoting_client import RemotingClient
from remoting.signature import RequestSigner


def outgoing_client(options: StartupOptions, signer: RequestSigner | None) -> RemotingClient:
    """Create the client, not started. Uses TLS if useTLS is set; `signer` signs every request."""
    tls = ClientTls(options.tls) if options.client.use_tls else None
    return RemotingClient(options.client, signer=signer, tls=tls)
