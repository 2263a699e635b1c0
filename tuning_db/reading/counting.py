"""The statement that counts hits of a request."""

COUNT = """
UPDATE requests SET hits = hits + :count, last_hit = CASE WHEN last_hit > :at THEN last_hit ELSE :at END
WHERE key = :request
"""
