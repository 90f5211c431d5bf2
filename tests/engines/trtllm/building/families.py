"""One checkpoint's config.json for each family in the stylers' table, as far as a builder reads it.

Source: config.json of the model named beside each on the Hugging Face Hub. Families that are the same to TensorRT-LLM
share a line.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
CHATGLM: dict[str, Any] = {
    "architectures": ["ChatGLMModel"],
    "num_layers": 2,
    "hidden_size": 64,
    "ffn_hidden_size": 128,
    "num_attention_heads": 4,
    "multi_query_group_num": 2,
    "kv_channels": 16,
    "seq_length": 8192,
    "torch_dtype": "float16",
}


@dataclass(frozen=True, slots=True)
class Family:
    """A model, its config.json, and the recipe that makes its engine; None is refused."""

    model: str
    config: Mapping[str, Any]
    recipe: str | None


def plain(model: str, architecture: str, recipe: str | None, **fields: Any) -> Family:
    return Family(model, {**SIZES, "architectures": [architecture], **fields}, recipe)


def internvl(model: str, inner: str, recipe: str | None) -> Family:
    llm = {**SIZES, "architectures": [inner]}
    return Family(model, {"architectures": ["InternVLChatModel"], "torch_dtype": "bfloat16", "llm_config": llm}, recipe)


LLAMA = plain("meta-llama/Llama-3.1-8B-Instruct", "LlamaForCausalLM", "llama")
MISTRAL = plain("mistralai/Mistral-Nemo-Instruct-2407", "MistralForCausalLM", "llama")
QWEN2 = plain("Qwen/Qwen2.5-7B-Instruct", "Qwen2ForCausalLM", "qwen2")
QWEN3 = plain("Qwen/Qwen3-8B", "Qwen3ForCausalLM", "qwen3")
QWEN3_MOE = plain("Qwen/Qwen3-Coder-30B-A3B-Instruct", "Qwen3MoeForCausalLM", "qwen3")
PHI3 = plain("microsoft/Phi-3.5-mini-instruct", "Phi3ForCausalLM", "phi-3")
INTERNLM2 = plain("internlm/internlm2_5-7b-chat", "InternLM2ForCausalLM", "internlm2")
DEEPSEEK = plain("deepseek-ai/DeepSeek-V3", "DeepseekV3ForCausalLM", None, kv_lora_rank=512)
GLM45 = plain("zai-org/GLM-4.5-Air", "Glm4MoeForCausalLM", None)
QWEN2_VL = plain("Qwen/Qwen2-VL-7B-Instruct", "Qwen2VLForConditionalGeneration", "qwen2-vl")

FAMILIES: Mapping[str, Family] = {
    "chatglm3": Family("zai-org/chatglm3-6b", {**CHATGLM, "padded_vocab_size": 65024}, "chatglm3"),
    "deepseek-v3": DEEPSEEK,
    "deepseek-v3.1": DEEPSEEK,
    "deepseek-r1-distill-qwen": QWEN2,
    "deepseek-r1-distill-llama": LLAMA,
    "gemma-2": plain("google/gemma-2-9b-it", "Gemma2ForCausalLM", "gemma-2"),
    "gemma-3": plain("google/gemma-3-1b-it", "Gemma3ForCausalLM", "gemma-3"),
    "gemma-4": plain("google/gemma-4", "Gemma4ForConditionalGeneration", None),
    "generic": LLAMA,
    "glm-4-9b-chat": Family("zai-org/glm-4-9b-chat", {**CHATGLM, "padded_vocab_size": 151552}, "glm-4-9b"),
    "glm-4.5": GLM45,
    "glm-4.6": GLM45,
    "gpt-oss": plain("openai/gpt-oss-20b", "GptOssForCausalLM", None),
    "hermes": LLAMA,
    "hermes-2-pro-tool_use": MISTRAL,
    "hermes-3": LLAMA,
    "hermes-3-tool_use": LLAMA,
    "internlm2": INTERNLM2,
    "internlm2.5": INTERNLM2,
    "internvl2-internlm2": internvl("OpenGVLab/InternVL2-8B", "InternLM2ForCausalLM", "internvl-internlm2"),
    "internvl2-qwen2": internvl("OpenGVLab/InternVL2-1B", "Qwen2ForCausalLM", "internvl-qwen2"),
    "internvl2-phi3": internvl("OpenGVLab/InternVL2-4B", "Phi3ForCausalLM", "internvl-phi3"),
    "internvl2_5": internvl("OpenGVLab/InternVL2_5-8B", "InternLM2ForCausalLM", "internvl-internlm2"),
    "internvl3-conversation": internvl("OpenGVLab/InternVL3-8B", "Qwen2ForCausalLM", "internvl-qwen2"),
    "internvl3": plain("OpenGVLab/InternVL3-8B-hf", "InternVLForConditionalGeneration", None),
    "internvideo2_5": internvl("OpenGVLab/InternVideo2_5_Chat_8B", "InternLM2ForCausalLM", "internvl-internlm2"),
    "janus-pro": plain("deepseek-ai/Janus-Pro-7B", "MultiModalityCausalLM", None),
    "kimi-k2": plain("moonshotai/Kimi-K2-Instruct", "DeepseekV3ForCausalLM", None, kv_lora_rank=512),
    "llama-3": LLAMA,
    "llama-3.1": LLAMA,
    "llama-3.2": LLAMA,
    "llama-3.3": LLAMA,
    "llama-3.2-vision": Family(
        "meta-llama/Llama-3.2-11B-Vision-Instruct",
        {"architectures": ["MllamaForConditionalGeneration"], "torch_dtype": "bfloat16", "text_config": SIZES},
        "mllama",
    ),
    "minicpm-v-2.6": plain("openbmb/MiniCPM-V-2_6", "MiniCPMV", None),
    "mistral-nemo": MISTRAL,
    "mistral-small-24b-2501": MISTRAL,
    "mistral-small-3.2": plain("mistralai/Mistral-Small-3.2", "Mistral3ForConditionalGeneration", None),
    "olmocr": QWEN2_VL,
    "phi-3-mini": PHI3,
    "phi-3.5-mini": PHI3,
    "phi-4": PHI3,
    "phi-4-mini": PHI3,
    "qwen-react": QWEN2,
    "qwen-vl": plain("Qwen/Qwen-VL-Chat", "QWenLMHeadModel", "qwen-vl", visual={"width": 1664}),
    "qwen1.5": QWEN2,
    "qwen2": QWEN2,
    "qwen2-vl": QWEN2_VL,
    "qwen2.5": QWEN2,
    "qwen2.5-coder": QWEN2,
    "qwen2.5-math": QWEN2,
    "qwen2.5-vl": plain("Qwen/Qwen2.5-VL-7B-Instruct", "Qwen2_5_VLForConditionalGeneration", None),
    "qwen3": QWEN3,
    "qwen3-coder": QWEN3_MOE,
    "qwen3-instruct-2507": QWEN3,
    "qwen3-thinking-2507": QWEN3,
    "qwq-32b": QWEN2,
    "qwq-32b-preview": QWEN2,
    "smollm2": LLAMA,
}
