"""The demo: a shop on an embedded PostgreSQL, replicated by tidelog."""
