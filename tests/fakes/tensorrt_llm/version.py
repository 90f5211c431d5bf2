"""The version that the fake stands for."""

__version__ = "1.2.1"
