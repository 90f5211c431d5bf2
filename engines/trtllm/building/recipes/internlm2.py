"""InternLM2 and 2.5. Source: examples/models/core/internlm2."""

from engines.trtllm.building.recipes.recipe import Quantisations, Recipe

SCRIPT = "models/core/internlm2/convert_checkpoint.py"
QUANTISATIONS: Quantisations = ("int8_wo", "int4_wo")

RECIPES = (
    Recipe(
        family="internlm2",
        architectures=("InternLM2ForCausalLM",),
        script=SCRIPT,
        quantisations=QUANTISATIONS,
    ),
)
