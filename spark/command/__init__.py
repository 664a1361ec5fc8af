"""`mqreport` and its subcommands: arguments, runs, catch-up, progress, notification, exit code.

Runs on the driver, or without any Spark (import, rules, openslo, compact). The composition root:
may import every other package, and is imported by spark/__main__.py alone.
"""
