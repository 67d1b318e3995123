"""Benchmarks: `stream` compares throughput and cost on one stream of changes, `latency` times commits to Delta."""
