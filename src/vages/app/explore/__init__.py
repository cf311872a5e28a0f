"""A local web page for exploring a deep run. It needs the extra `vages[explore]`."""
