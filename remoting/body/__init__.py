"""JSON bodies of commands, and the contents of config/*.json. A module per subject.

Frozen slots dataclasses; json_bean converts them to text and back by their annotations. Wire bodies
shared by broker and name server are defined here.
"""
