"""Static figure benchmarks: check, convert, run, judge and compare them."""
