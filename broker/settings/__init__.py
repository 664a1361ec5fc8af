"""The broker's settings: what a file may say, what a request may change, what is in force.

Read once at the start by the supervisor, passed to every process; changed in process `remoting`
by request 25. It must not know who uses a setting.
"""
