"""The service: connectors as queries of one Spark session, behind the REST that Kafka Connect's users know."""
