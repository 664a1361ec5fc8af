"""Measurements on one machine; none of them is a test."""
