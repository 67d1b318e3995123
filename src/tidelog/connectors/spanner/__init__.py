"""Spanner: its offsets."""
