"""An attack on the whole of it; ``python -m benchmarks.attack`` runs it."""
