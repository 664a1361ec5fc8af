"""The remoting protocol: bytes, frames, connections. Knows no broker.

Rules of the room: the codec modules (frame, remoting_codec, remoting_serializable,
rocketmq_serializable, headers, body) never see a socket, a thread or a clock. The loop, connection,
server and client modules move bytes and own the threads. Nothing here imports conf, store, ha,
namesrv or broker.
"""
