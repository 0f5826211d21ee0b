"""The claims: one file for what belongs together, with what to run and how to judge it."""
