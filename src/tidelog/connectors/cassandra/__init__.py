"""Cassandra: its offsets."""
