"""Qwen, Qwen 1.5 and Qwen 2 with tools the ReAct way: the tools stand in the question, calls are labelled lines.

Source: QwenLM/Qwen, openai_api.py. Thought, action and observation follow each other in one turn of the assistant,
which stays open behind a last observation.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from stylers.call_format import CallFormat
from stylers.chat import Chat, Message, Role, ToolDefinition
from stylers.messages import to_system_role
from stylers.parsing.react import ACTION, ACTION_INPUT, FINAL_ANSWER, OBSERVATION, THOUGHT, ReactCalls
from stylers.qwen2 import STOP, Qwen2Styler
from stylers.tools import ToolFormat, to_json

CALLS = CallFormat(before_name=f"{ACTION} ", before_arguments=f"\n{ACTION_INPUT} ", parallel=False)


def instruction(tools: Sequence[ToolDefinition], question: str) -> str:
    """Write the question with the tools and the format in front of it."""
    described = "\n\n".join(
        f"{tool.name}: Call this tool to interact with the {tool.name} API. What is the {tool.name} API useful for? "
        f"{tool.description} Parameters: {to_json(tool.parameters)} Format the arguments as a JSON object."
        for tool in tools
    )
    return (
        "Answer the following questions as best you can. You have access to the following APIs:\n\n"
        f"{described}\n\nUse the following format:\n\n"
        "Question: the input question you must answer\n"
        "Thought: you should always think about what to do\n"
        f"Action: the action to take, should be one of [{', '.join(tool.name for tool in tools)}]\n"
        "Action Input: the input to the action\n"
        "Observation: the result of the action\n"
        "... (this Thought/Action/Action Input/Observation can be repeated zero or more times)\n"
        "Thought: I now know the final answer\n"
        "Final Answer: the final answer to the original input question\n\n"
        f"Begin!\n\nQuestion: {question}"
    )


@dataclass(frozen=True)
class QwenReactStyler(Qwen2Styler):
    """Without tools it is Qwen 2."""

    tool_format: ClassVar[ToolFormat | None] = ToolFormat(CALLS, ReactCalls())

    def write_tools(self, chat: Chat) -> Chat:
        """Put the tools in front of the last question, and calls with their results into the assistant's turns."""
        turns: list[Message] = []
        for message in to_system_role(chat.messages):
            if message.role in (Role.ASSISTANT, Role.TOOL) and turns and turns[-1].role == Role.ASSISTANT:
                turns[-1] = replace(turns[-1], content=f"{turns[-1].text}\n{_lines(message)}")
            elif message.role in (Role.ASSISTANT, Role.TOOL):
                turns.append(replace(message, role=Role.ASSISTANT, content=_lines(message), tool_calls=()))
            else:
                turns.append(message)
        last = max((index for index, turn in enumerate(turns) if turn.role == Role.USER), default=None)
        if last is not None:
            turns[last] = replace(turns[last], content=instruction(chat.tools, turns[last].text))
        written = replace(chat, messages=tuple(turns), tools=())
        if chat.messages[-1].role != Role.TOOL:
            return written
        return replace(written, add_generation_prompt=False, continue_final_message=True)

    def stop_strings(self, chat: Chat) -> tuple[str, ...]:
        """With tools, generation also ends where a result has to come."""
        return (*STOP, OBSERVATION) if chat.tools else STOP


def _lines(message: Message) -> str:
    if message.role == Role.TOOL:
        return f"{OBSERVATION} {message.text}"
    if not message.tool_calls:
        return f"{THOUGHT} I now know the final answer.\n{FINAL_ANSWER} {message.text}"
    thought = [f"{THOUGHT} {message.text}"] if message.text else []
    return "\n".join([*thought, *(CALLS.write((call,)) for call in message.tool_calls)])


ROWS = (QwenReactStyler("qwen-react"),)
