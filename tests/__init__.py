"""Tests of tidelog; `servers`, `proxy` and `spark_session` are what they stand on."""
