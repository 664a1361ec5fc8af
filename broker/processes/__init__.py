"""The composition root of each process: construct, wire, order; no policy, no message handling.

Nobody imports these modules; the supervisor starts them with `python -m broker.processes.NAME`.
"""
