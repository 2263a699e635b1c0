"""What a plan's key looks like on a command line, whole or its beginning."""

import re

KEY = re.compile(r"[0-9a-f]{64}\Z")
PREFIX = re.compile(r"[0-9a-f]{4,64}\Z")
