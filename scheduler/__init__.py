"""The search for a plan: `scheduler.tune.tune`."""
