"""Display: a plan as people read it, in a terminal, in words and in a notebook."""
