"""What happens: pure functions over values and Arrow tables; no I/O, no threads, no clock."""
