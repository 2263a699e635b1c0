"""The planning service: HTTP API, workers, dashboard and command line."""
