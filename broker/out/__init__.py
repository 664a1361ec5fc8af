"""What the broker asks others: name servers, and other brokers of its group.

Process `remoting`, on the scheduled executor and on threads of requests, never on the loop. It must
not know what is done with the answers.
"""
