"""Tests of the room for PyTorch are collected where there is PyTorch."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
