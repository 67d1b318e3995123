"""Db2: its offsets."""
