"""GEARS (Roohani et al. 2023, package cell-gears 0.1.2): trained on our cells, predicting singles and pairs in batches.

Importing this package imports neither torch nor gears: `simulators.gears.model` does, when it is used.
"""
