"""Write a report to the terminal, as JSON, or as CSV."""
