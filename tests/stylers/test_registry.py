import pytest

import stylers
from stylers import StylerError
from stylers.detect import ARCHITECTURES, MODEL_TYPES, NAME_RULES, TEMPLATE_RULES
from tests.stylers.data import golden_names, output_names, styler_name, template, template_names

SAME_TEMPLATE = {  # official templates that are one text, or too plain to be told apart
    "qwen2.5-coder": "qwen2.5",
    "internvl3": "qwen2.5",
    "qwen2.5-vl": "qwen2-vl",
    "olmocr": "qwen2-vl",
    "deepseek-r1-distill": "deepseek-r1-distill-qwen",
    "deepseek-r1-distill-llama": "deepseek-r1-distill-qwen",
    "glm-4.6": "glm-4.5",
    "llama-3.3": "llama-3.1",
    "hermes-2-pro-tool_use": "hermes-3-tool_use",
    **dict.fromkeys(("qwen1.5", "qwen2", "minicpm-v-2.6", "internlm2", "internlm2.5", "hermes-3"), "generic"),
}
MODELS = {
    "Qwen/Qwen1.5-72B-Chat": "qwen1.5",
    "Qwen/Qwen2-7B-Instruct": "qwen2",
    "Qwen/Qwen2.5-7B-Instruct-1M": "qwen2.5",
    "Qwen/Qwen2.5-Math-7B-Instruct": "qwen2.5-math",
    "Qwen/Qwen2.5-Coder-32B-Instruct": "qwen2.5-coder",
    "Qwen/QwQ-32B": "qwq-32b",
    "Qwen/QwQ-32B-Preview": "qwq-32b-preview",
    "Qwen/Qwen3-0.6B": "qwen3",
    "Qwen/Qwen3-235B-A22B": "qwen3",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3-instruct-2507",
    "Qwen/Qwen3-Next-80B-A3B-Thinking": "qwen3-thinking-2507",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder",
    "Qwen/Qwen2-VL-7B-Instruct": "qwen2-vl",
    "Qwen/Qwen2.5-VL-3B-Instruct": "qwen2.5-vl",
    "Qwen/Qwen-VL-Chat": "qwen-vl",
    "allenai/olmOCR-7B-0825": "olmocr",
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": "deepseek-r1-distill-qwen",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": "deepseek-r1-distill-llama",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "deepseek-ai/DeepSeek-V3.1": "deepseek-v3.1",
    "THUDM/chatglm3-6b": "chatglm3",
    "THUDM/glm-4-9b-chat": "glm-4-9b-chat",
    "zai-org/GLM-4.5-Air": "glm-4.5",
    "zai-org/GLM-4.6": "glm-4.6",
    "internlm/internlm2-chat-7b": "internlm2",
    "internlm/internlm2_5-7b-chat": "internlm2.5",
    "meta-llama/Meta-Llama-3-8B-Instruct": "llama-3",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1",
    "meta-llama/Llama-3.2-3B-Instruct": "llama-3.2",
    "meta-llama/Llama-3.2-11B-Vision-Instruct": "llama-3.2-vision",
    "meta-llama/Llama-3.3-70B-Instruct": "llama-3.3",
    "microsoft/Phi-3-mini-4k-instruct": "phi-3-mini",
    "microsoft/Phi-3.5-mini-instruct": "phi-3.5-mini",
    "microsoft/phi-4": "phi-4",
    "microsoft/Phi-4-mini-instruct": "phi-4-mini",
    "google/gemma-2-9b-it": "gemma-2",
    "google/gemma-3-4b-it": "gemma-3",
    "google/gemma-4-31B-it": "gemma-4",
    "mistralai/Mistral-Nemo-Instruct-2407": "mistral-nemo",
    "mistralai/Mistral-Small-24B-Instruct-2501": "mistral-small-24b-2501",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral-small-3.2",
    "openai/gpt-oss-20b": "gpt-oss",
    "moonshotai/Kimi-K2-Instruct": "kimi-k2",
    "NousResearch/Hermes-2-Pro-Llama-3-8B": "hermes-2-pro-tool_use",
    "NousResearch/Hermes-3-Llama-3.1-8B": "hermes-3",
    "OpenGVLab/InternVL2-8B": "internvl2-internlm2",
    "OpenGVLab/InternVL2-1B": "internvl2-qwen2",
    "OpenGVLab/InternVL2-4B": "internvl2-phi3",
    "OpenGVLab/InternVL2_5-8B": "internvl2_5",
    "OpenGVLab/InternVL3-8B": "internvl3-conversation",
    "OpenGVLab/InternVideo2_5_Chat_8B": "internvideo2_5",
    "deepseek-ai/Janus-Pro-7B": "janus-pro",
    "openbmb/MiniCPM-V-2_6": "minicpm-v-2.6",
    "models/SmolLM2-135M-Instruct.Q4_1.gguf": "smollm2",
    "acme/unheard-of-7b": "generic",
}


@pytest.mark.parametrize("family", [*golden_names(), *output_names()])
def test_every_family_of_the_data_has_a_styler(family: str) -> None:
    assert styler_name(family) in (stylers.get(styler_name(family)).name, *stylers.get(styler_name(family)).aliases)


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(StylerError, match=r"no styler named 'qwen9'.*qwen3, "):
        stylers.get("qwen9")


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="registered already"):
        stylers.register_styler(stylers.get("qwen3"))


@pytest.mark.parametrize(("model_name", "expected"), MODELS.items())
def test_a_model_is_known_by_its_name(model_name: str, expected: str) -> None:
    assert stylers.detect(None, None, model_name) == expected


@pytest.mark.parametrize("family", template_names())
def test_a_model_is_known_by_its_template(family: str) -> None:
    expected = SAME_TEMPLATE.get(styler_name(family), styler_name(family))
    assert stylers.detect({}, template(family), "renamed") == expected


def test_the_configuration_decides_where_name_and_template_are_plain() -> None:
    assert stylers.detect({"model_type": "qwen2"}, template("qwen2"), "renamed") == "qwen2"
    assert stylers.detect({"architectures": ["MiniCPMV"], "model_type": "x"}, None, "renamed") == "minicpm-v-2.6"
    assert stylers.detect({"_name_or_path": "internlm/internlm2-chat-7b"}, None, "renamed") == "internlm2"


def test_rules_name_stylers_that_exist() -> None:
    named = {rule.styler for rule in NAME_RULES} | {rule.styler for rule in TEMPLATE_RULES}
    assert named | {*MODEL_TYPES.values(), *ARCHITECTURES.values()} <= set(stylers.names())
