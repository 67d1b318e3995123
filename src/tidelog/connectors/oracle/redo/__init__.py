"""Redo SQL: what LogMiner writes of a change, read back into values."""
