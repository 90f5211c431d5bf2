"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini. Source: examples/models/core/phi."""

from engines.trtllm.building.recipes.recipe import ConvertFlags, Recipe

SCRIPT = "models/core/phi/convert_checkpoint.py"
FLAGS = ConvertFlags(pipeline_parallel_size=None)  # there is one, which must be 1

RECIPES = (
    Recipe(
        family="phi-3",
        architectures=("Phi3ForCausalLM",),
        script=SCRIPT,
        quantisations=("int8_wo", "int4_wo", "int8_sq", "fp8"),
        flags=FLAGS,
        limits=("the vendor's page lists --tp for Phi-3-small and Phi-3.5-MoE only",),
    ),
)
