"""Llama 3.2 with images. Source: "MLLaMA" in examples/models/core/multimodal/README.md."""

from engines.trtllm.building.recipes.recipe import Recipe

RECIPES = (
    Recipe(
        family="mllama",
        architectures=("MllamaForConditionalGeneration",),
        script="models/core/mllama/convert_checkpoint.py",
        quantisations=("int8_wo", "int4_wo", "fp8"),
        build_arguments=("--max_encoder_input_len", "6404"),  # of the instruct models; 4100 of the others
        limits=(
            "images enter by cross-attention, not by the prompt table: this server sends such an engine text only",
            "fp8 is calibrated on images: --calibration-dataset scienceqa",
        ),
    ),
)
