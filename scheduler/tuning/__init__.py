"""Tuning one segment: its schedules, which to try next, what every trial took."""
