"""The `openai` package over Chat Completions, with its own accumulator for streams."""
import json
import os
import sys

from openai import OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"], max_retries=0)
WEATHER = {"type": "function", "function": {"name": "my_weather", "description": "The weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


def turn(messages, **more):
    """(the message, the number of pieces of text, usage)"""
    pieces = 0
    with client.chat.completions.stream(model="gpt-4o-mini", messages=messages, stream_options={"include_usage": True}, **more) as stream:
        for event in stream:
            pieces += event.type == "content.delta" and bool(event.delta)
        final = stream.get_final_completion()
    return final.choices[0], pieces, final.usage


def server_tools():
    assert "default" in [model.id for model in client.models.list()]
    choice, pieces, usage = turn([{"role": "user", "content": "tea and cake please"}])
    assert choice.finish_reason == "stop", choice
    return {"text": choice.message.content, "pieces": pieces, "calls": choice.message.tool_calls or [], "total_tokens": usage.total_tokens}


def client_tool():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is the weather in Bonn?"}]
    choice, _, _ = turn(messages, tools=[WEATHER])
    assert choice.finish_reason == "tool_calls", choice
    calls = choice.message.tool_calls
    messages.append({"role": "assistant", "content": choice.message.content, "tool_calls": [
        {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}} for call in calls]})
    for call in calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    choice, _, _ = turn(messages, tools=[WEATHER])
    received = [{"name": call.function.name, "arguments": json.loads(call.function.arguments)} for call in calls]
    return {"text": choice.message.content, "calls": received}


print(json.dumps({"server_tools": server_tools, "client_tool": client_tool}[sys.argv[1]]()))
