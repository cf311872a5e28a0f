"""The application above the library: recipes, run folders, reports and the command `vages`."""
