"""An OpenAI-compatible LLM inference server in one process."""

__version__ = "0.1.0"
