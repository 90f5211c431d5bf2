"""The families that TensorRT-LLM 1.2 can make engines of, one module each. Another family is another module."""

from collections.abc import Mapping
from typing import Any

from engines.building import BuildError
from engines.trtllm.building.recipes import gemma, glm, internlm2, internvl, llama, mllama, phi, qwen
from engines.trtllm.building.recipes.recipe import ConvertFlags, Recipe
from engines.trtllm.checkpoint import Checkpoint

__all__ = ["RECIPES", "ConvertFlags", "Recipe", "find_recipe"]

RECIPES: tuple[Recipe, ...] = tuple(
    recipe for family in (gemma, glm, internlm2, internvl, llama, mllama, phi, qwen) for recipe in family.RECIPES
)


def find_recipe(checkpoint: Checkpoint) -> Recipe:
    """Return the recipe for a checkpoint. Raises BuildError where TensorRT-LLM has none."""
    name = _full_architecture(checkpoint)
    for recipe in RECIPES:
        if name in recipe.architectures and _fits(recipe.where, checkpoint.config):
            return recipe
    raise BuildError(
        f"TensorRT-LLM 1.2 makes no engine of a {name}; use the checkpoint driver: "
        f"llm-server serve {checkpoint.path} --engine trtllm"
    )


def _full_architecture(checkpoint: Checkpoint) -> str:
    """The architecture, and of a model with images that of its language model where the file names one."""
    inner = checkpoint.config.get("llm_config")
    names = inner.get("architectures") if isinstance(inner, Mapping) else None
    return f"{checkpoint.architecture}/{names[0]}" if names else checkpoint.architecture


def _fits(where: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return all(name in config if value is ... else config.get(name) == value for name, value in where.items())
