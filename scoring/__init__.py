"""Metrics, intervals and tests."""
