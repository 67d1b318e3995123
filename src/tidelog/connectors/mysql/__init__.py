"""MySQL: its offsets."""
