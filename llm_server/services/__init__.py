"""The story of one request, told over stylers, tokenizer and executor."""
