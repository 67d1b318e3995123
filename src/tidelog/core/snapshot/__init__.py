"""Incremental snapshots, pure: what is asked for, how far it is, and what a chunk must be reconciled with."""
