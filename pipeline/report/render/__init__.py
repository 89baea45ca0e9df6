"""A report in the terminal, as JSON and as CSV."""
