"""What the application shows while it works: the console, the progress bar, TensorBoard."""
