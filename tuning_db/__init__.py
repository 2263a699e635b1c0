"""Plans, measurements, devices and the job queue, on SQLite or PostgreSQL. Start at `tuning_db.store.Store`."""
