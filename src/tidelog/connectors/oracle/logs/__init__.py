"""Log files: which there are, whether they are complete, and which of them a mining session takes."""
