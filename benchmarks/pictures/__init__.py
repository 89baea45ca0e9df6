"""Make the pictures of the documents from real datasets and reports."""
