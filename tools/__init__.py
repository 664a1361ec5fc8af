"""tools: the operator's commands.

Each runs as a short-lived program beside a broker. Knows settings files and the protocol; it must
not know how a broker is built inside: what it shows came over the wire.
"""
