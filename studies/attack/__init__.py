"""An attack on the whole of it; ``python -m studies.attack`` runs it."""
