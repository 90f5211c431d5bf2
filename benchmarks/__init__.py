"""Measurements: a load generator for any OpenAI-compatible server, and the executor on its own."""
