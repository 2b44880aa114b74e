"""Frozen case files and example run configs."""
