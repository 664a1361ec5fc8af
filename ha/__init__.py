"""ha: the log's way from the master to its slaves.

Runs in the `ha` process, on the threads of the services named here. Knows the store and nothing
above it: what it needs of the rest comes through small Protocols.
"""
