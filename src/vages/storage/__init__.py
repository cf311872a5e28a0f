"""Files that are written: whole after a crash, and never through a link."""
