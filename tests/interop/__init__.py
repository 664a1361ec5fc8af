"""Tests against real Java peers from Maven Central: clients, name servers and brokers."""
