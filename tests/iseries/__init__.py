"""An IBM i in miniature: a journal with receivers behind the driver's interface, and seeded workloads over it."""
