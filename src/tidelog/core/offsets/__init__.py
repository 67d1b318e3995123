"""Offset documents: what a connector's offset may say, field by field, and how two of them relate. Pure."""
