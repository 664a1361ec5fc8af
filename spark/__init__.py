"""The nightly replication report: reads metrics dumps, computes in Spark's executors, stands alone.

Started by bin/mqreport as `python -m spark`, or by spark-submit with spark/__main__.py.

    command            arguments, runs, subcommands, exit code      driver
    job                session, the one Spark job, stored tables    driver; tasks: executors
    page               report.html, summary.json, CSV               driver
    figures            samples -> figures -> verdicts, no Spark     executors; of several: driver
    evidence           chains of lines and results, signatures      no Spark; lines: executors
    dumps              lines and files of dumps                     executors; compaction: no Spark
    config             sla.yaml, OpenSLO, Prometheus rules          driver; its values: executors
    prometheus_import  Prometheus' answers become dumps             no Spark
    sources            RocketMQ as tables and streams of Spark      driver, executors

A date's way: command_line checks the arguments; report_run starts Spark and calls sla_report for
each date; its job (report_job) sends every broker group's lines (dump_files) and stored rows to one
task, where group_report computes all rows of the group; results stores the tables; report_page and
summary write the files. At the top are only the words of the dumps (vocabulary) and the date that
is reported (reported_day). Who may import whom is held by tests/test_architecture.py.

But for `sources`, imports nothing of the broker: its input is the exported files
(docs/metrics_dump.md).
"""
