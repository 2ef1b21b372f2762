"""`langchain-openai` over the API named in $API, as an agent would use it: every request sends the whole history."""
import json
import os
import sys

from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

options = {"chat": {"stream_usage": True}, "responses": {"use_responses_api": True}}[os.environ["API"]]
model = ChatOpenAI(model="gpt-4o-mini", base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"], max_retries=0, **options)


@tool
def my_weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def text(message):
    if isinstance(message.content, str):
        return message.content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in message.content)


def turn(model, messages):
    """(the whole message, the number of pieces of text)"""
    whole, pieces = None, 0
    for chunk in model.stream(messages):
        pieces += bool(text(chunk))
        whole = chunk if whole is None else whole + chunk
    return whole, pieces


def server_tools():
    whole, pieces = turn(model, [HumanMessage("tea and cake please")])
    return {"text": text(whole), "pieces": pieces, "calls": whole.tool_calls, "total_tokens": whole.usage_metadata["total_tokens"]}


def client_tool():
    bound = model.bind_tools([my_weather])
    messages = [SystemMessage("Be brief."), HumanMessage("How is the weather in Bonn?")]
    calling, _ = turn(bound, messages)
    assert not calling.invalid_tool_calls, calling
    messages.append(calling)
    messages += [ToolMessage(my_weather.invoke(call["args"]), tool_call_id=call["id"]) for call in calling.tool_calls]
    # Chat is streamed again; over Responses the second request is not, so both ways are seen.
    whole = turn(bound, messages)[0] if os.environ["API"] == "chat" else bound.invoke(messages)
    return {"text": text(whole), "calls": [{"name": call["name"], "arguments": call["args"]} for call in calling.tool_calls]}


print(json.dumps({"server_tools": server_tools, "client_tool": client_tool}[sys.argv[1]]()))
