"""Several brokers of one host under one process: their settings, their processes, and the requests
that add and remove them (902, 903). Whoever sends or pulls a message meets the brokers only."""
