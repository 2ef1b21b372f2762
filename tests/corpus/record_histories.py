"""Writes histories as langchain-core and langchain-openai serialise them. Run with the Python of tests/clients.

usage: record_histories.py FOLDER
"""
import json
import pathlib
import sys

from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, convert_to_openai_messages, messages_to_dict
from langchain_openai.chat_models.base import _construct_responses_api_input, _convert_message_to_dict

WEATHER = {"name": "get_weather", "args": {"city": "Köln"}, "id": "call_w1", "type": "tool_call"}
TODOS = {"name": "get_todos", "args": {"status": "open", "limit": 3}, "id": "call_t1", "type": "tool_call"}
USAGE = {"input_tokens": 21, "output_tokens": 9, "total_tokens": 30}

HISTORIES = {
    "plain": [HumanMessage("Hallo!"), AIMessage("Guten Tag. Wie kann ich helfen?", usage_metadata=USAGE), HumanMessage("Danke, „alles“ gut 👍")],
    "one-call": [SystemMessage("Be brief."), HumanMessage("Weather in Köln?"), AIMessage("", tool_calls=[WEATHER]),
                 ToolMessage('{"sky": "rain"}', tool_call_id="call_w1", name="get_weather"), AIMessage("It rains.")],
    "two-calls": [HumanMessage("Weather and tasks?"), AIMessage("I look.", tool_calls=[WEATHER, TODOS]),
                  ToolMessage("rain", tool_call_id="call_w1", name="get_weather"),
                  ToolMessage("No right.", tool_call_id="call_t1", name="get_todos", status="error"), AIMessage("It rains; the tasks are closed to you.")],
    "image": [HumanMessage([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]),
              AIMessage("A very small picture.")],
}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, messages in HISTORIES.items():
    history = {
        "openai_messages_core": convert_to_openai_messages(messages),
        "openai_messages_langchain_openai": [_convert_message_to_dict(message) for message in messages],
        "responses_input_langchain_openai": _construct_responses_api_input(messages),
        "messages_to_dict": messages_to_dict(messages),
        "dumpd": [dumpd(message) for message in messages],
    }
    (folder / f"{name}.json").write_text(json.dumps(history, indent=1, ensure_ascii=False) + "\n")
print(f"{len(HISTORIES)} histories recorded in {folder}")
