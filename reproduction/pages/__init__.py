"""What a reader gets: the page and the table of verdicts, and the map of Figure 1."""
