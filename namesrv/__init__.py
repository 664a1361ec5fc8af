"""namesrv: who serves which topic. Brokers register here, clients ask for routes here.

Everything is in memory but the KV file and the settings file. Name servers know nothing of each
other: a broker registers with every one of them. The same code runs stand-alone (`python -m
namesrv`) and inside the broker (`namesrv.namesrv_controller.run_embedded`). The room may import
conf and remoting, nothing else of ours.
"""
