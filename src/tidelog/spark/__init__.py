"""The Spark layer: the data source, the pipeline and the sinks."""

from tidelog.spark import versions

if (_version := versions.installed_version()) is not None:
    versions.require_supported(_version)
