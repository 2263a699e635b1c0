"""Moving plans between databases: decisions and measurements travel, code never does.

A plan that arrives is generated, compiled, checked and timed anew; its own times and binaries are not even in the file.
"""
