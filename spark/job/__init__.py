"""Spark's part of a report: the session, the one job over all dumps, and the stored tables.

Runs on the driver, but for report_tasks, which executors run: sla_report names the stages of a
date. Must not know the command's arguments or notifications.
"""
