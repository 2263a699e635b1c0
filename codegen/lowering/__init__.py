"""Segment -> loop program: pull values through views, unify axes, choose lanes, place values in one tree of loops."""
