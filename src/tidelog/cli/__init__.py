"""The command line: one file per command, each with `configure(parser)` and `run(arguments) -> exit code`."""
