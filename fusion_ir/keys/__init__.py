"""Keys: what makes two graphs, two segments, or two plans the same."""
