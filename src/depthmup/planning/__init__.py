"""Planning: rules meet a model."""
