"""How far a right kernel may be off: error bounds, perturbed evaluations, tolerances, the comparison of outputs."""
