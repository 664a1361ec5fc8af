"""What the operator promises: the objectives of sla.yaml, their OpenSLO documents and Prometheus
rules.

Read on the driver before Spark is started; the values (objectives, exclusions) are pickled and go
to the executors. Must not know dumps, figures, Spark, or the command's arguments.
"""
