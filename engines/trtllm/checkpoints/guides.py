"""Guides for the llguidance backend of TensorRT-LLM, which compiles them when a request arrives.

A guide that does not compile would fail there, in early releases with the whole engine; so the same library compiles
it here first. Source of the form: tensorrt_llm/_torch/pyexecutor/grammar_matcher.py, whose EBNF_GRAMMAR is Lark.
"""

from engines.contract import Guide
from engines.guides import GuideCompiler


def guide_arguments(guide: Guide, compiler: GuideCompiler) -> dict[str, str]:
    """Return the arguments of GuidedDecodingParams for a guide that `compiler` compiles."""
    return {"grammar": compiler.lark(guide)}
