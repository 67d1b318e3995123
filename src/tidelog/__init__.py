"""tidelog: change data capture for Apache Spark."""

__version__ = "0.1.0"
