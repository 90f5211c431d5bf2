"""Gemma, text only. Source: examples/models/core/gemma."""

from engines.trtllm.building.recipes.recipe import ConvertFlags, Quantisations, Recipe

SCRIPT = "models/core/gemma/convert_checkpoint.py"
FLAGS = ConvertFlags(tensor_parallel_size="--world-size", pipeline_parallel_size=None, workers=None)
QUANTISATIONS: Quantisations = ("int8_wo", "int4_wo", "int4_awq", "int8_sq", "fp8")
FROM_HUGGING_FACE = ("--ckpt-type", "hf")
SMOOTHQUANT = "int8_sq needs --dtype float16"

RECIPES = (
    Recipe(
        family="gemma-2",
        architectures=("Gemma2ForCausalLM",),
        script=SCRIPT,
        quantisations=QUANTISATIONS,
        flags=FLAGS,
        convert_arguments=FROM_HUGGING_FACE,
        max_sequence_length=4096,
        limits=(SMOOTHQUANT,),
    ),
    Recipe(
        family="gemma-3",
        architectures=("Gemma3ForCausalLM",),
        script=SCRIPT,
        quantisations=QUANTISATIONS,
        flags=FLAGS,
        convert_arguments=FROM_HUGGING_FACE,
        limits=(SMOOTHQUANT, "serve it with max_attention_window = [512, 512, 512, 512, 512, CONTEXT]"),
    ),
)
