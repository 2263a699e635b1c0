"""The cheapest cover of a graph by segments: a set-covering problem, by lazy pricing, separation and branch and
bound."""
