"""Words of terminal and pages: numbers with units, names, states, shares of bounds, sentences about plans and
searches."""
