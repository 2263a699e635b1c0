"""Child processes with limits, what they share with their parents, and files that only their owner may change."""
