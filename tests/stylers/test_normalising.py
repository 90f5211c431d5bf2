"""What official templates refuse or lose, put right."""

from typing import Any

import pytest

import stylers
from stylers import Chat, StylerError
from tests.stylers.data import styler_name, template, template_names

TOOL = {"type": "function", "function": {"name": "look", "description": "Look around.", "parameters": {}}}


def call(name: str, call_id: str | None = None, arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: dict[str, Any], content: str | None = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls), **more}


def said(role: str, content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def rendered(name: str, *messages: dict[str, Any], **request: Any) -> str:
    body = {"messages": list(messages), **request}
    return stylers.get(name).render(body, chat_template=template(name), bos_token="<s>", eos_token="</s>")


@pytest.mark.parametrize("name", ["qwen3", "llama-3.1", "gpt-oss", "glm-4.5", "kimi-k2", "mistral-small-3.2"])
def test_the_developer_role_is_the_system_role(name: str) -> None:
    assert rendered(name, said("developer", "Be kind."), said("user")) == rendered(
        name, said("system", "Be kind."), said("user")
    )


PARTS = [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]


@pytest.mark.parametrize("name", template_names())
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_no_part_of_a_list_is_lost_or_printed_as_python(name: str, role: str) -> None:
    chats = {
        "system": [said("system", PARTS), said("user")],
        "user": [said("user", PARTS)],
        "assistant": [said("user"), said("assistant", PARTS), said("user")],
        "tool": [said("user"), calling(call("look", "abcdefghi")), said("tool", PARTS, tool_call_id="abcdefghi")],
    }
    body = {"messages": chats[role], "tools": [TOOL] if "tool_use" in name else None}
    prompt = stylers.get(styler_name(name)).render(body, chat_template=template(name), eos_token="</s>")
    if role == "tool" and name.startswith("phi"):
        return  # these templates leave results out; with tools in the request they stand in the texts
    assert "first" in prompt
    assert "second" in prompt
    assert "'text'" not in prompt


@pytest.mark.parametrize("name", ["gemma-2", "gemma-3"])
def test_gemma_takes_any_order_of_roles(name: str) -> None:
    prompt = rendered(name, said("system", "S"), said("user", "a"), said("user", "b"), said("tool", "c"))
    assert prompt.endswith("<start_of_turn>user\nS\n\na\n\nb\n\nc<end_of_turn>\n<start_of_turn>model\n")
    assert "<start_of_turn>user\n<end_of_turn>\n<start_of_turn>model\nhi" in rendered(name, said("assistant", "hi"))


def test_mistral_takes_any_order_of_roles() -> None:
    prompt = rendered("mistral-nemo", said("assistant", "hi"), said("user", "a"), said("user", "b"))
    assert prompt == "<s>[INST][/INST]hi</s>[INST]a\n\nb[/INST]"
    prompt = rendered(
        "mistral-nemo",
        said("user", "a"),
        calling(call("look", "c1")),
        said("tool", "1", tool_call_id="c1"),
        said("user", "b"),
    )
    assert prompt.endswith("[/TOOL_RESULTS]</s>[INST]b[/INST]")


def test_mistral_ids_have_nine_letters_and_agree() -> None:
    history = (said("user"), calling(call("look", "call_abcdef0123456789")))
    by_id = rendered("mistral-nemo", *history, said("tool", "1", tool_call_id="call_abcdef0123456789"))
    by_order = rendered("mistral-nemo", *history, said("tool", "1"))
    assert by_id == by_order
    short = by_id.split('"id": "')[1][:9]
    assert short.isalnum()
    assert f'"call_id": "{short}"' in by_id


def test_llama_gets_one_call_a_turn_each_with_its_result() -> None:
    prompt = rendered(
        "llama-3.1",
        said("user"),
        calling(call("look", "a"), call("look", "b", '{"at": 2}')),
        said("tool", "second", tool_call_id="b"),
        said("tool", "first", tool_call_id="a"),
    )
    places = [prompt.index(text) for text in ('"parameters": {}', '"first"', '{"at": 2}', '"second"')]
    assert places == sorted(places)


def test_kimi_numbers_calls_that_have_no_id() -> None:
    prompt = rendered("kimi-k2", said("user"), calling(call("look")), said("user"), calling(call("look")))
    assert "functions.look:0<|tool_call_argument_begin|>" in prompt
    assert "functions.look:1<|tool_call_argument_begin|>" in prompt


def test_gemma_4_names_results_by_their_call() -> None:
    prompt = rendered("gemma-4", said("user"), calling(call("look", "a")), said("tool", "1", tool_call_id="a"))
    assert "<|tool_response>response:look{" in prompt


def test_gpt_oss_takes_text_beside_reasoning_and_a_call() -> None:
    prompt = rendered(
        "gpt-oss", said("user"), calling(call("look"), content="I will look.", reasoning="Hm."), said("tool")
    )
    assert "Hm.\n\nI will look." in prompt


@pytest.mark.parametrize("name", ["glm-4.5", "qwen3-coder"])
def test_malformed_arguments_in_the_history_are_one_clear_refusal(name: str) -> None:
    with pytest.raises(StylerError, match="arguments of the call of 'look' are no JSON object"):
        rendered(name, said("user"), calling(call("look", arguments='{"at": ')))


def test_deepseek_keeps_text_before_a_call_and_closes_a_single_one() -> None:
    prompt = rendered(
        "deepseek-v3", said("user"), calling(call("look"), content="Let me see."), said("tool"), tools=[TOOL]
    )
    assert "Let me see.<｜tool▁calls▁begin｜>" in prompt  # noqa: RUF001
    assert "<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>" in prompt  # noqa: RUF001


def test_hermes_tool_template_works_without_tools() -> None:
    assert rendered("hermes-3-tool_use", said("user", "Hi")).endswith("user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_internlm_has_the_tools_in_a_plugin_message() -> None:
    prompt = rendered(
        "internlm2", said("system", "S"), said("user"), calling(call("look")), said("tool", "seen"), tools=[TOOL]
    )
    assert prompt.startswith("<s><|im_start|>system\nS<|im_end|>\n<|im_start|>system name=<|plugin|>\n[\n")
    assert '<|action_start|><|plugin|>\n{"name": "look", "parameters": {}}<|action_end|><|im_end|>' in prompt
    assert "<|im_start|>environment name=<|plugin|>\nseen<|im_end|>" in prompt


def test_react_keeps_the_turn_open_behind_an_observation() -> None:
    styler = stylers.get("qwen-react")
    chat = Chat.from_openai(
        {
            "messages": [said("user", "Where?"), calling(call("look"), content="I look."), said("tool", "here")],
            "tools": [TOOL],
        }
    )
    prompt = styler.build_prompt(chat)
    assert "Begin!\n\nQuestion: Where?<|im_end|>" in prompt.text
    assert prompt.text.endswith("assistant\nThought: I look.\nAction: look\nAction Input: {}\nObservation: here")
    assert "Observation:" in prompt.stop


def test_generic_tools_are_a_switch() -> None:
    chat = Chat.from_openai({"messages": [said("user"), calling(call("look")), said("tool", "seen")], "tools": [TOOL]})
    plain = stylers.get("smollm2")
    with pytest.raises(StylerError, match="generic_tools is off") as refused:
        plain.build_prompt(chat)
    assert refused.value.param == "tools"
    styler = plain.for_model(generic_tools=True)
    text = styler.build_prompt(chat).text
    assert "Look around." in text
    assert '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call><|im_end|>' in text
    assert "<|im_start|>user\n<tool_response>\nseen\n</tool_response><|im_end|>" in text
    message = styler.parse('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>', tools=[TOOL])
    assert message.finish_reason == "tool_calls"
    assert plain.parse('<tool_call>{"name": "look"}</tool_call>', tools=[TOOL]).tool_calls == ()


def test_a_family_without_builder_asks_for_its_template() -> None:
    with pytest.raises(StylerError, match="needs a chat template"):
        stylers.get("kimi-k2").render({"messages": [said("user")]})


def test_the_builder_can_be_preferred_to_the_template() -> None:
    chat = Chat.from_openai({"messages": [said("user", "Hi")]})
    styler = stylers.get("smollm2").for_model(chat_template="{{ 'mine' }}", prefer_builder=True)
    assert styler.build_prompt(chat).text.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("name", "kwargs", "opens"),
    [
        ("qwq-32b", {}, True),
        ("qwen3", {}, False),
        ("qwen3-thinking-2507", {}, True),
        ("deepseek-r1-distill-qwen", {}, True),
        ("deepseek-v3.1", {"thinking": True}, True),
        ("deepseek-v3.1", {"thinking": False}, False),
        ("glm-4.5", {"enable_thinking": False}, False),
        ("gemma-4", {"enable_thinking": False}, False),
    ],
)
def test_the_prompt_says_whether_it_opened_the_reasoning(name: str, kwargs: dict[str, Any], opens: bool) -> None:
    styler = stylers.get(name).for_model(chat_template=template(name))
    chat = Chat.from_openai({"messages": [said("user")], "chat_template_kwargs": kwargs})
    assert styler.build_prompt(chat).prefilled_think is opens


def test_an_unclosed_thought_that_is_continued_is_open() -> None:
    styler = stylers.get("qwq-32b").for_model(chat_template=template("qwq-32b"))
    body = {"messages": [said("user"), said("assistant", "<think>\nso far")], "continue_final_message": True}
    prompt = styler.build_prompt(Chat.from_openai(body))
    assert prompt.text.endswith("<think>\nso far")
    assert prompt.prefilled_think


def test_reasoning_can_stay_in_the_content() -> None:
    styler = stylers.get("qwen3").for_model(split_reasoning=False)
    message = styler.parse("<think>\nhm\n</think>\n\nyes")
    assert (message.content, message.reasoning) == ("<think>\nhm\n</think>\n\nyes", None)


@pytest.mark.parametrize("key", ["messages", "tools", "bos_token", "strftime_now"])
def test_a_request_cannot_replace_what_the_server_gives_the_template(key: str) -> None:
    with pytest.raises(StylerError, match="cannot be set"):
        rendered("qwen3", said("user"), chat_template_kwargs={key: "x"})


def test_documents_reach_the_template() -> None:
    styler = stylers.get("generic")
    body = {"messages": [said("user")], "documents": [{"title": "T", "text": "D"}]}
    assert styler.render(body, chat_template="{{ documents[0].title }}") == "T"


PLAIN = "{% for message in messages %}[{{ message.role }}]{{ message.content }}{% endfor %}"


@pytest.mark.parametrize("name", stylers.names())
def test_no_family_forgets_tools_that_the_template_ignores(name: str) -> None:
    styler = stylers.get(name).for_model(chat_template=PLAIN)
    chat = Chat.from_openai({"messages": [said("user"), calling(call("look")), said("tool", "seen")], "tools": [TOOL]})
    if styler.supports.tools == "generic" or name == "gpt-oss":
        with pytest.raises(StylerError, match="tools") as refused:
            styler.build_prompt(chat)
        assert refused.value.param == "tools"
    else:
        text = styler.build_prompt(chat).text
        assert "Look around." in text
        assert "seen" in text


def test_an_unknown_recipient_of_gpt_oss_is_content_and_the_next_message_is_read() -> None:
    raw = "<|channel|>commentary to=browser.search<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>Hi"
    message = stylers.get("gpt-oss").parse(raw, tools=[TOOL])
    assert message.content == "<|channel|>commentary to=browser.search<|message|>{}<|end|>\nHi"
