"""Measurements against raw runsc, made in the same call: ``python -m benchmarks [NAME...]``."""
