"""Measurements of speed, by name."""

BENCHES = {name: f"vages.app.bench.{name}" for name in ("estimators", "grbm", "deep", "overhead")}
