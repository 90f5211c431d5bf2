"""Bodies of the HTTP API as pydantic models: what arrives is checked here once."""
