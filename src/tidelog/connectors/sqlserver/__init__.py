"""SQL Server: its offsets."""
