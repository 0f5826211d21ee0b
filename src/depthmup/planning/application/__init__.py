"""Application: what a plan does to a model and its optimizer, and whether it still holds."""
