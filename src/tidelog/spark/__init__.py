"""The Spark layer: the data source, the pipeline and the sinks."""
