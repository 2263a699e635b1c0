"""Segment + schedule -> kernel -> binary -> launch -> time, for each target."""
