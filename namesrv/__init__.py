"""namesrv: which broker serves which topic. Brokers register here, clients look up routes here.

Everything but the KV file and the settings file is in memory. Name servers do not know each other:
a broker registers with all of them. The same code runs stand-alone (`python -m namesrv`) and inside
a broker (`namesrv.namesrv_controller.run_embedded`). The room may import conf and remoting only.
"""
