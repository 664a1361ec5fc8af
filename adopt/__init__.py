"""bin/mqadopt: takes over the store directory of another RocketMQ broker, and gives one back.

Runs as a short-lived program of the operator, while no broker runs on the directory. Looking
(`store_survey`, `plan`) writes nothing; doing (`adoption`) is a row of steps, each of which may be
cut off and done again. RocksDB is known by `rocks_database` (the library) and `rocks_codec` (the
bytes) only; everything else sees tables, units and records. It must not know: sockets, a running
broker.
"""
