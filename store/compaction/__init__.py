"""Compaction topics: of every key the newest record is kept, however old (docs/compaction.md).

Process `store` writes (CompactionStore), `remoting` reads (CompactionReader); the files are those
of RocketMQ 5.3.3. It knows which topics are meant from whoever constructs it.
"""
