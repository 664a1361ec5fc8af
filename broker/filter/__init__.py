"""SQL92 message filters: the original's selector language and the groups' expressions.

From text to answer: selector_parser (grammar) builds with selector_nodes (rules of the language)
closures over selector_values (Java's numbers and comparisons); message_filter reads a record's
properties; consumer_filter_manager keeps who filters what.
"""
