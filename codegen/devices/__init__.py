"""Devices of this machine: finding them, measuring their ceilings, taking broken ones out of service."""
