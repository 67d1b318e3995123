"""Seeded simulation of incremental snapshots: a model of a database and an engine in miniature drive the real core."""
