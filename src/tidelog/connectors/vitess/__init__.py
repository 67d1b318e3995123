"""Vitess: its offsets."""
