"""SmolLM2: plain ChatML. Source: tokenizer_config.json of HuggingFaceTB/SmolLM2-1.7B-Instruct, 2024-10-31."""

from stylers.chatml import ChatMLStyler

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"

ROWS = (ChatMLStyler("smollm2", default_system=SYSTEM),)
