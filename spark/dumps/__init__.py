"""Metrics dumps (docs/metrics_dump.md): one line, typed; a file's lines by broker group;
compaction.

Lines and files are read in the executors; `mqreport compact` and `mqreport import`, which write
dumps, run without Spark. Must not know what lines are used for.
"""
