"""How a program shows its metrics: rows to Prometheus text, and the small HTTP server around it.

Broker and controller count by themselves, and give rows; nothing here knows what they mean. Java:
org.apache.rocketmq.remoting.metrics.
"""
