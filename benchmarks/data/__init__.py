"""Prompts for the load generator, and the script that made the long ones."""
