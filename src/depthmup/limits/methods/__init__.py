"""Methods: the equations of each kind of block and depth, for the one training loop."""
