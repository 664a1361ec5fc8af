"""Stores of RocketMQ's DLedger mode (enableDLegerCommitLog=true): read, and imported into ours.

`python -m store.dledger_import` is the command; one process, which holds the locks of all stores
that it works on. No broker imports any of it but `unfinished_import`, which a start asks. Nothing
here knows sockets, settings files or the wire protocol of DLedger.
"""
