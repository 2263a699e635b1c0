"""Segments: what one kernel computes. Atoms, masks of atoms, which segments there are, and which a family accepts."""
