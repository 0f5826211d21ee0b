"""Initialization: how the size of what a model starts with depends on the model's own size."""
