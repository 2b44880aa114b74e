"""Contracts, settings, data access and the figures shown to models."""
