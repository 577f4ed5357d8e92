"""Claims: what the scheduler gave, what it means here, and the files that make it true."""
