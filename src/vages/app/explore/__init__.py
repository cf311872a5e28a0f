"""A local web page for exploring a run. It needs the extra `vages[explore]`."""
