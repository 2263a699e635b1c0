"""Helpers of the rules: what surrounds a node, factors of products, labels of their axes, slices as windows."""
