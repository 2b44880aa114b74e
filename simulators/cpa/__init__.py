"""CPA (Lotfollahi et al. 2023, package cpa-tools): trained on our cells with whole combinations held out.

Importing this package imports neither torch nor cpa: `simulators.cpa.model` does, when it is used.
"""
