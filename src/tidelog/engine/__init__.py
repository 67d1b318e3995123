"""What makes it run: the capture loop, retries, definitions, state folders, verification."""
