"""The nightly replication report: reads metrics dumps, computes with PySpark, stands alone.

Started by bin/mqreport as `python -m spark`, or by spark-submit with spark/__main__.py. Both come
to command_line, which checks the arguments and has report_run start Spark and report on each date.
On the driver, sla_report names the stages of a date and report_job is its one Spark job; results
stores tables, page and summary write what people and programs read. In the executors, report_tasks
brings each broker group's lines together (dump_files, dump_line), and group_report computes every
row about the group: sample_stream (lines in order), replica_names, replica_time (good, bad,
unknown, excluded), replica_day and group_day (figures), events, verdicts, windows. Beside the
report: `mqreport import` (prometheus_import), `compact`, `rules`, `openslo`: no Spark.

Imports nothing of the broker: its input is the exported files (docs/metrics_dump.md).
"""
