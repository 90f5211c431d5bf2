"""Llama, Mistral, and what is built like them. Source: examples/models/core/llama."""

from engines.trtllm.building.recipes.recipe import Quantisations, Recipe

SCRIPT = "models/core/llama/convert_checkpoint.py"
QUANTISATIONS: Quantisations = ("int8_wo", "int4_wo", "int4_awq", "w4a8_awq", "int8_sq", "fp8", "nvfp4")

RECIPES = (
    Recipe(
        family="llama",
        architectures=("LlamaForCausalLM", "MistralForCausalLM"),
        script=SCRIPT,
        quantisations=QUANTISATIONS,
        prequantised=("awq", "gptq"),
        limits=("the number of key-value heads must be divisible by --tp",),
    ),
)
