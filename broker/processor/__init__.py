"""What every request processor of the broker is made of.

A processor is one module a subject, in the wing of its subject (admin, client, pop, pull, send, …):
a table code -> bound method without state of its own. Here are its base class and the questions
about rights and times that several of them ask.
"""
