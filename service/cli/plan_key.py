"""Patterns of a plan's key on a command line: all 64 hexadecimal digits, or its beginning of 4 or more."""

import re

KEY = re.compile(r"[0-9a-f]{64}\Z")
PREFIX = re.compile(r"[0-9a-f]{4,64}\Z")
