"""Output of the application during work: the console, the progress bar, TensorBoard."""
