"""Which family a model folder belongs to: by its name, else by what its template holds, else by its configuration."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

UNKNOWN = "generic"


@dataclass(frozen=True, slots=True)
class NameRule:
    """A styler for the models whose name fits. Names are compared in lower case, with `-` for `_` and blanks."""

    styler: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class TemplateRule:
    """A styler for the models whose template holds all of these strings."""

    styler: str
    markers: tuple[str, ...]


def _names(**patterns: str) -> tuple[NameRule, ...]:
    return tuple(NameRule(styler, re.compile(pattern)) for styler, pattern in patterns.items())


# The first rule that fits decides, so what is special stands before what is general.
NAME_RULES = _names(
    **{
        "smollm2": r"smollm-?2",
        "olmocr": r"olmocr",
        "internvideo2_5": r"internvideo-?2[.-]5",
        "internvl3-conversation": r"internvl-?3",
        "internvl2_5": r"internvl-?2[.-]5",
        "internvl2-phi3": r"internvl-?2-4b",
        "internvl2-qwen2": r"internvl-?2-(1b|40b)",
        "internvl2-internlm2": r"internvl-?2",
        "janus-pro": r"janus-pro",
        "minicpm-v-2.6": r"minicpm-v-?2[.-]6",
        "hermes-2-pro-tool_use": r"hermes-2-pro",
        "hermes-3": r"hermes-3",
        "deepseek-r1-distill-llama": r"deepseek-r1-distill-llama",
        "deepseek-r1-distill-qwen": r"deepseek-r1",
        "deepseek-v3.1": r"deepseek-v3\.1",
        "deepseek-v3": r"deepseek-v3(?!\.)",
        "kimi-k2": r"kimi-k2",
        "gpt-oss": r"gpt-oss",
        "qwen3-coder": r"qwen3-coder",
        "qwen3-thinking-2507": r"qwen3-.*thinking",
        "qwen3-instruct-2507": r"qwen3-.*instruct",
        "qwen3": r"qwen3-\d",
        "qwq-32b-preview": r"qwq-32b-preview",
        "qwq-32b": r"qwq",
        "qwen2.5-vl": r"qwen2\.5-vl",
        "qwen2-vl": r"qwen2-vl",
        "qwen-vl": r"qwen-vl",
        "qwen2.5-coder": r"qwen2\.5-coder",
        "qwen2.5-math": r"qwen2\.5-math",
        "qwen2.5": r"qwen2\.5",
        "qwen2": r"qwen2-",
        "qwen1.5": r"qwen1\.5",
        "glm-4.6": r"glm-4\.6",
        "glm-4.5": r"glm-4\.5",
        "glm-4-9b-chat": r"glm-4-9b",
        "chatglm3": r"chatglm3",
        "internlm2.5": r"internlm-?2[.-]5",
        "internlm2": r"internlm2",
        "llama-3.3": r"llama-?3\.3",
        "llama-3.2-vision": r"llama-?3\.2.*vision",
        "llama-3.2": r"llama-?3\.2",
        "llama-3.1": r"llama-?3\.1",
        "llama-3": r"llama-?3(?![.\d])",
        "phi-4-mini": r"phi-?4-mini",
        "phi-4": r"phi-?4",
        "phi-3.5-mini": r"phi-?3\.5-mini",
        "phi-3-mini": r"phi-?3-mini",
        "gemma-4": r"gemma-?4",
        "gemma-3": r"gemma-?3(?!n)",
        "gemma-2": r"gemma-?2",
        "mistral-small-3.2": r"mistral-small-(3\.2|.*2506)",
        "mistral-small-24b-2501": r"mistral-small-.*2501",
        "mistral-nemo": r"mistral-(nemo|small-(3\.1|.*2503))",
    }
)
TEMPLATE_RULES = (
    TemplateRule("gpt-oss", ("<|channel|>analysis", "<|message|>")),
    TemplateRule("kimi-k2", ("<|tool_calls_section_begin|>",)),
    TemplateRule("qwen3-coder", ("<function=", "<parameter=")),
    TemplateRule("glm-4.5", ("<arg_key>",)),
    TemplateRule("gemma-4", ("<|channel>", "<|turn>")),
    TemplateRule("gemma-3", ("<start_of_turn>", "<start_of_image>")),
    TemplateRule("gemma-2", ("<start_of_turn>",)),
    TemplateRule("glm-4-9b-chat", ("[gMASK]<sop>",)),
    TemplateRule("chatglm3", ("[gMASK]sop",)),
    TemplateRule("deepseek-v3.1", ("<\uff5cAssistant\uff5c>", "</think>", "thinking")),
    TemplateRule("deepseek-r1-distill-qwen", ("<\uff5cAssistant\uff5c>", "</think>")),
    TemplateRule("deepseek-r1-distill-qwen", ("<\uff5cAssistant\uff5c>", "<think>")),
    TemplateRule("deepseek-v3", ("<\uff5cAssistant\uff5c>",)),
    TemplateRule("llama-3.2-vision", ("<|start_header_id|>", "<|image|>")),
    TemplateRule("llama-3.2", ("<|start_header_id|>", "ipython", "strftime_now")),
    TemplateRule("llama-3.1", ("<|start_header_id|>", "ipython")),
    TemplateRule("llama-3", ("<|start_header_id|>",)),
    TemplateRule("mistral-small-3.2", ("[TOOL_CALLS]", "[ARGS]")),
    TemplateRule("mistral-nemo", ("[TOOL_CALLS]",)),
    TemplateRule("mistral-small-24b-2501", ("[SYSTEM_PROMPT]", "[INST]")),
    TemplateRule("phi-4", ("<|im_sep|>",)),
    TemplateRule("phi-4-mini", ("<|tool|>", "<|end|>")),
    TemplateRule("phi-3.5-mini", ("<|end|>", "and message['content']")),
    TemplateRule("phi-3-mini", ("<|end|>", "<|user|>")),
    TemplateRule("qwen2-vl", ("<|vision_start|>", "<|im_start|>")),
    TemplateRule("hermes-3-tool_use", ("<tool_call>", "function calling AI model")),
    TemplateRule("qwen3", ("<tool_call>", "reasoning_content", "enable_thinking")),
    TemplateRule(
        "qwen3-thinking-2507", ("<tool_call>", "reasoning_content", "assistant\\n<think>\\n' }}\n{%- endif %}")
    ),
    TemplateRule("qwen3-instruct-2507", ("<tool_call>", "reasoning_content")),
    TemplateRule("qwq-32b-preview", ("<tool_call>", "You are Qwen developed by Alibaba.")),
    TemplateRule("qwq-32b", ("<tool_call>", "<think>")),
    TemplateRule("qwen2.5", ("<tool_call>", "<|im_start|>")),
    TemplateRule("smollm2", ("<|im_start|>", "named SmolLM")),
)
MODEL_TYPES: Mapping[str, str] = {
    "chatglm": "glm-4-9b-chat",
    "deepseek_v3": "deepseek-v3",
    "gemma2": "gemma-2",
    "gemma3": "gemma-3",
    "gemma3_text": "gemma-3",
    "gemma4": "gemma-4",
    "glm4_moe": "glm-4.5",
    "gpt_oss": "gpt-oss",
    "internlm2": "internlm2",
    "internvl_chat": "internvl2_5",
    "kimi_k2": "kimi-k2",
    "minicpmv": "minicpm-v-2.6",
    "mistral3": "mistral-small-3.2",
    "mllama": "llama-3.2-vision",
    "multi_modality": "janus-pro",
    "phi3": "phi-3-mini",
    "qwen2": "qwen2",
    "qwen2_5_vl": "qwen2.5-vl",
    "qwen2_vl": "qwen2-vl",
    "qwen3": "qwen3",
    "qwen3_moe": "qwen3",
}
ARCHITECTURES: Mapping[str, str] = {
    "InternVLChatModel": "internvl2_5",
    "MiniCPMV": "minicpm-v-2.6",
    "MultiModalityCausalLM": "janus-pro",
    "QWenLMHeadModel": "qwen-vl",
}


def detect(config: Mapping[str, object] | None, chat_template: str | None, model_name: str) -> str:
    """Return the name of the styler for a model; "generic" where nothing is recognised.

    `config` is config.json, `model_name` a repository, folder or file name.
    """
    config = config or {}
    return (
        _by_name(model_name)
        or _by_name(str(config.get("_name_or_path") or ""))
        or _by_template(chat_template or "")
        or _by_config(config)
        or UNKNOWN
    )


def _by_name(model_name: str) -> str | None:
    name = re.split(r"[/\\]", model_name.rstrip("/\\"))[-1].lower().replace("_", "-").replace(" ", "-")
    return next((rule.styler for rule in NAME_RULES if rule.pattern.search(name)), None)


def _by_template(chat_template: str) -> str | None:
    fitting = (rule for rule in TEMPLATE_RULES if all(marker in chat_template for marker in rule.markers))
    return next((rule.styler for rule in fitting), None)


def _by_config(config: Mapping[str, object]) -> str | None:
    architectures = config.get("architectures")
    for architecture in architectures if isinstance(architectures, list) else ():
        if architecture in ARCHITECTURES:
            return ARCHITECTURES[architecture]
    return MODEL_TYPES.get(str(config.get("model_type")))
