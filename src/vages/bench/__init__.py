"""Measurements of speed, by name."""

BENCHES = {"estimators": "vages.bench.estimators", "grbm": "vages.bench.grbm"}
