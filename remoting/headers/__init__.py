"""Request and response headers: what travels in extFields, a module for each subject.

Frozen slots dataclasses and nothing else; command_custom_header turns them into text and back.
"""
