"""A broker group's samples become figures, incidents, events, windows and verdicts.

Plain Python, called in the executors, once for each broker group (group_report); clusters, and the
report's rows as the page gets them (report_data), are made on the driver. The rules are in
docs/sla_report.md. Must not know Spark, files, or how a report looks.
"""
