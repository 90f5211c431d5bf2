"""ChatGLM3 and GLM-4-9B. Source: examples/models/core/glm-4-9b, which ChatGLM3's page points to as well.

The script reads the version out of the folder's name unless it is told; the vocabularies tell it here.
"""

from engines.trtllm.building.recipes.recipe import ConvertFlags, Recipe

SCRIPT = "models/core/glm-4-9b/convert_checkpoint.py"
FLAGS = ConvertFlags(pipeline_parallel_size=None)  # there is one, which must be 1
ARCHITECTURES = ("ChatGLMModel", "ChatGLMForConditionalGeneration")

RECIPES = (
    Recipe(
        family="chatglm3",
        architectures=ARCHITECTURES,
        where={"padded_vocab_size": 65024},
        script=SCRIPT,
        quantisations=("int8_wo", "int4_wo", "int4_awq", "int8_sq", "fp8"),
        flags=FLAGS,
        convert_arguments=("--chatglm_version", "chatglm3"),
    ),
    Recipe(
        family="glm-4-9b",
        architectures=ARCHITECTURES,
        where={"padded_vocab_size": 151552},
        script=SCRIPT,
        quantisations=("int8_wo", "int4_wo"),
        flags=FLAGS,
        convert_arguments=("--chatglm_version", "glm4"),
    ),
)
