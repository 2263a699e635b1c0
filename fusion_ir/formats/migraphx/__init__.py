"""MIGraphX's program dumps."""
