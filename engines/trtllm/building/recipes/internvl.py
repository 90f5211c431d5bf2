"""InternVL 2 and what came after it: the script of its language model. Source: "InternVL2" in
examples/models/core/multimodal/README.md.
"""

from engines.trtllm.building.recipes import internlm2, phi, qwen
from engines.trtllm.building.recipes.recipe import Recipe

IMAGE_ROWS = 3328  # 13 tiles of 256: 12 and the thumbnail
LIMITS = ("the vendor's page lists InternVL2 1B to 26B; later models are built alike and have not been tried",)

RECIPES = (
    Recipe(
        family="internvl-internlm2",
        architectures=("InternVLChatModel/InternLM2ForCausalLM",),
        script=internlm2.SCRIPT,
        quantisations=internlm2.QUANTISATIONS,
        image_rows=IMAGE_ROWS,
        limits=LIMITS,
    ),
    Recipe(
        family="internvl-qwen2",
        architectures=("InternVLChatModel/Qwen2ForCausalLM",),
        script=qwen.SCRIPT,
        quantisations=("int8_wo", "int4_wo"),
        image_rows=IMAGE_ROWS,
        limits=LIMITS,
    ),
    Recipe(
        family="internvl-phi3",
        architectures=("InternVLChatModel/Phi3ForCausalLM",),
        script=phi.SCRIPT,
        quantisations=("int8_sq", "fp8"),
        flags=phi.FLAGS,
        image_rows=IMAGE_ROWS,
        limits=LIMITS,
    ),
)
