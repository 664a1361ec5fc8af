"""The store: bytes on disk, in the files and layouts of Apache RocketMQ 4.9.8.

commit log, consumequeue, index, checkpoint and what keeps them: recovery, flush, retention. It
appends bytes and reads bytes; it knows no socket, no broker feature and no configuration file.
Build upward: codec -> MappedFile -> MappedFileQueue -> CommitLog / ConsumeQueue / IndexFile ->
services -> DefaultMessageStore. One process writes each file (docs/ARCHITECTURE.md).
"""
