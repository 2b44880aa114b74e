"""Response-calibration adapters."""
