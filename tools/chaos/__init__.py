"""chaos: what `bin/mqchaos` is made of: a scratch group of brokers, clients, faults, and the judge.

Runs in the process of mqchaos and its threads; the brokers are processes of their own, started with
`python -m broker`, and know nothing of it: they are seen through their ports, their signals and
their files only. So nothing here may import broker, store or ha: a judge that shares the code's
assumptions proves nothing.
"""
