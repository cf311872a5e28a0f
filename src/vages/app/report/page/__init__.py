"""The self-contained HTML page of a run: markup, tables, curves, pictures, and the reader of the run's files.

The page uses the pictures of `vages.app.report`, which do not depend on it.
"""
