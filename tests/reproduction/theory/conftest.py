"""The problems and simulations that the tests of the limits have, too."""

from wide_networks import make_steps, reference, simulated, simulated_two_matrix  # noqa: F401
