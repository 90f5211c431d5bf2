"""Qwen of all generations, and with images. Source: examples/models/core/qwen, qwenvl and multimodal."""

from engines.trtllm.building.recipes.recipe import Quantisations, Recipe

SCRIPT = "models/core/qwen/convert_checkpoint.py"
DENSE: Quantisations = ("int8_wo", "int4_wo", "int4_awq", "int8_sq", "fp8")

RECIPES = (
    Recipe(
        family="qwen-vl",
        architectures=("QWenLMHeadModel",),
        where={"visual": ...},
        script=SCRIPT,
        image_rows=256,
    ),
    Recipe(
        family="qwen",
        architectures=("QWenLMHeadModel",),
        script=SCRIPT,
        quantisations=DENSE,
        limits=("dynamic NTK and logn attention are left out: long prompts lose accuracy",),
    ),
    Recipe(
        family="qwen2",
        architectures=("Qwen2ForCausalLM",),
        script=SCRIPT,
        quantisations=DENSE,
        prequantised=("awq", "gptq"),
        limits=("not every size has int4_awq with every --tp",),
    ),
    Recipe(
        family="qwen2-moe",
        architectures=("Qwen2MoeForCausalLM",),
        script=SCRIPT,
        quantisations=("int8_wo", "int4_wo"),
    ),
    Recipe(
        family="qwen3",
        architectures=("Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
        script=SCRIPT,
        quantisations=("fp8", "nvfp4"),
        limits=("the vendor's page lists Qwen3 without pipeline parallelism and for Hopper GPUs and newer",),
    ),
    Recipe(
        family="qwen2-vl",
        architectures=("Qwen2VLForConditionalGeneration",),
        script=SCRIPT,
        quantisations=("fp8",),
        image_rows=324,  # a picture of 504 x 504
        limits=("larger pictures have more rows than 324: raise --max-multimodal-len",),
    ),
)
