"""nvFuser's Python definitions, read as data: nothing is executed."""
