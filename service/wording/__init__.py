"""What terminal and pages say: numbers with units, names, states, shares of bounds, sentences about plans and
searches."""
