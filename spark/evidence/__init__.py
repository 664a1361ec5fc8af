"""Proof that nobody edited it: the chain of dump lines, the chain of results, signatures.

`mqreport verify` and `mqreport sign` run without Spark; the report's job calls `file_chain` and
`dump_chain` in its executors and `links` on the driver. What can be concluded is said in
docs/evidence.md. Must not know Spark, nor what lines and figures mean.
"""
