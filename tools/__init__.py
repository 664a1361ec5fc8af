"""tools: the operator's commands.

Each runs as a short-lived program beside a broker. Knows settings files and the protocol; it must
not know a broker's internals: everything it shows was received over the network.
"""
