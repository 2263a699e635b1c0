"""The wire format: graphs as JSON."""
