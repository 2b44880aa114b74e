"""Simulators: predicted responses to perturbations."""
