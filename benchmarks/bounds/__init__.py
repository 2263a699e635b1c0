"""Lower bounds beside measured times."""
