"""MariaDB: its offsets."""
