"""The broker: every feature lives here, above the rooms that know bytes, files and frames.

Rules of the room: managers hold state and know no connection's bytes; services own threads;
processors answer request codes and get the few objects they use through their constructor;
`broker_controller` and `processes` only wire. Imports conf, remoting, store and ha; nothing
imports broker.
"""
