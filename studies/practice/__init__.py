"""What ordinary practice does to transfer: measured, one change of the recipe at a time."""
