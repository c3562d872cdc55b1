"""Seeded benchmarks: configuration printed, everything compared in one run, medians and ratios reported."""
