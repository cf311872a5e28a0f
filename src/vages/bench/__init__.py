"""Measurements of speed, by name."""

BENCHES = {"estimators": "vages.bench.estimators"}
