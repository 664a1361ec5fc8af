"""The client of process `remoting`: how its calls to name servers and other brokers travel.

Made once, by the controller. What is asked over it: broker_outer_api.py.
"""

from __future__ import annotations

from broker.settings.startup_options import StartupOptions
from remoting.client_tls import ClientTls
from remoting.remoting_client import RemotingClient
from remoting.signature import RequestSigner


def outgoing_client(options: StartupOptions, signer: RequestSigner | None) -> RemotingClient:
    """Not started. With TLS if useTLS says so; `signer` signs every request."""
    tls = ClientTls(options.tls) if options.client.use_tls else None
    return RemotingClient(options.client, signer=signer, tls=tls)
