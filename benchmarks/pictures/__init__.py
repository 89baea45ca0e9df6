"""Make the pictures of the documentation from real datasets and reports."""
