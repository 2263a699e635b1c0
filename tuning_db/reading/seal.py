"""The database's secret, by which object caches tell what was compiled for it from what was planted."""

NAME = "object cache"
BYTES = 32
SEAL = f"SELECT name, secret FROM seals WHERE name = '{NAME}'"
