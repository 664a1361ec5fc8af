"""Pop consumption: messages are handed out with an invisible time and acknowledged one by one.

Runs on the loop of `remoting`. Check points, acks, the buffer that matches them in memory and the
journal it is rebuilt from, and the processors of its requests.
"""
