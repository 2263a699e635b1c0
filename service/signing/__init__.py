"""Signatures of answers and bundles, by which clients know plans of this service from planted ones."""
