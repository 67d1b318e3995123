"""MongoDB: its offsets."""
