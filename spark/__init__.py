"""The nightly replication report: reads metrics dumps, computes with PySpark, stands alone.

Imports nothing of the broker; its input is the exported files. The job comes with the metrics
issue; until then this room is empty.
"""
