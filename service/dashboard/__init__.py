"""Pages for people: the list of cached plans, a page per plan, and a page per type of error."""
