"""Rewrites: equal tensors, produced otherwise; the graph as the search sees it."""
