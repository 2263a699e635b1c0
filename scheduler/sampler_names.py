"""Names of the samplers that can steer a schedule search: a table that takes nothing to import."""

SAMPLERS = {  # that steer the search for schedules; a dotted path to another one is a sampler, too
    "fuseplan": "a Gaussian process over all schedules of a segment, with what others took as its prior",
    "tpe": "Optuna's tree-structured Parzen estimator",
    "gp": "Optuna's Gaussian process (needs PyTorch)",
    "cmaes": "CMA-ES over the fields that are numbers (needs the package cmaes)",
    "random": "schedules drawn at random",
}
