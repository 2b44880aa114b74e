"""Interpretation models, their prompts and the one reply parser."""
