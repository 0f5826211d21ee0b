"""Problems and simulations of these tests, and of those of the reproduction."""

from wide_networks import make_steps, reference, simulated, simulated_two_matrix  # noqa: F401
