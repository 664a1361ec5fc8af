"""Answers of a Prometheus server that scrapes brokers become metrics dumps.

Plain Python on the machine of whoever runs `mqreport import`; starts no Spark. Must not know the
report: what it writes is what a broker would have written (docs/metrics_dump.md).
"""
