"""A page on this machine alone, to play with what a deep run learnt. It needs the extra `vages[explore]`."""
