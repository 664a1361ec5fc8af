"""Half messages: how they are kept, checked with their producers, and ended.

Process `remoting`: appends on the loop, checks on a thread of their own
(TransactionalMessageCheckService). It must not know the request that ends a transaction
(broker/transaction/end_transaction_processor.py).
"""
