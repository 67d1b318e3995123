"""Where control state rests: SQLite in the pipeline's state folder."""
