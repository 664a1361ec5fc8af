"""JSON bodies: what travels behind a header, and what config/*.json hold. A module per subject.

Frozen slots dataclasses; json_bean turns them into text and back by their annotations. A wire
body that broker and name server share lives here, never in a room of its own.
"""
