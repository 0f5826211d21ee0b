"""The networks and the data that come with this package; ``depthmup.training`` is their door."""
