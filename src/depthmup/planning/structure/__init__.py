"""Structure: what a model is beside its base: matched parameters, roles, branches, sites."""
