"""The compiled part of the package."""
