"""The nightly replication report: reads metrics dumps, computes with PySpark, stands alone.

Started by bin/mqreport as `python -m spark`, or by spark-submit with spark/__main__.py. Both come
to command_line, which checks the arguments and has report_run start Spark and report on each date.
The stages of a date, in the order of sla_report: dump_lines (lines of the dumps), samples (put in
order), segments (time of each replica), then minutes, incidents, figures and events of the day,
verdicts, windows (several days), results (stored, one date replaced), report_rows (what a report
shows, collected), page and summary (written). `mqreport import` is prometheus_import: no Spark.

Imports nothing of the broker: its input is the exported files (docs/metrics_dump.md).
"""
