"""The HTML page of a run, which needs nothing but itself: its markup, tables, curves and pictures, and what it reads.

The page stands on the pictures of `vages.app.report`; none of them knows of it.
"""
