"""The room of the console in the browser: any RocketMQ cluster, live.

A process of its own (`python -m console`, bin/mqconsole), never on the way of a message: it speaks
the admin protocol as mqadmin does. It must not know a broker's files, nor import broker, store, ha
or spark.

- `lanes`: every request to a broker, at most one a second in the long run, shared by all readers
- `poller`, `snapshot`: what is known of the cluster now; `history`: of the last hours
- `views`: one module a page: functions from what is known to a page; `tables`: their tables
- `access`: who may see and change what
- `app`: the web application that puts these together
"""
