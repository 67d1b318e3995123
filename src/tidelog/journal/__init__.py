"""The universal transaction buffer: a durable cache of the database's log between capture and Spark."""
