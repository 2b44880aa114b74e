"""Static figure benchmarks."""
