"""Schedule search on tables of all schedules."""
