"""SQL92 message filters: RocketMQ's selector language and the groups' expressions.

selector_parser (grammar) uses selector_nodes (semantics) to build closures over selector_values
(Java's numbers and comparisons); message_filter reads a record's properties;
consumer_filter_manager stores the filters of the groups.
"""
