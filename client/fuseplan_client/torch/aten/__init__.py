"""Lowerings of aten ops to the wire format, a function an op, in files by topic; `table` puts them together."""
