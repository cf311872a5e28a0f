"""Writing files so that they are complete after a crash, and never through a link."""
