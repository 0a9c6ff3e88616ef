"""The Python SDK: an HTTP client, async at the source, sync generated."""
