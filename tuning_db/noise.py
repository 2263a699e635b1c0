"""Noise of measured times, as shares of them."""

NOISE = 0.03  # by so much may anything seem faster than it can be
NOISY = 0.1  # spread from which on a time says little
