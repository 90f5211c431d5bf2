"""HTTP in, HTTP out: one module per group of routes."""
