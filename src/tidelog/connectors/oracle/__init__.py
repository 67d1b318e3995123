"""Oracle: its offsets."""
