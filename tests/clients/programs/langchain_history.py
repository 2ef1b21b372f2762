"""langchain-core reads a conversation Werkruf has kept, and Werkruf takes back what langchain-core writes."""
import json
import os
import sys
import urllib.request

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_from_dict, messages_to_dict

API = os.environ["BASE_URL"].removesuffix("/v1") + "/api/conversations"


def call(method, url, body=None):
    headers = {"authorization": "Bearer " + os.environ["API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers, method=method)
    return json.load(urllib.request.urlopen(request, timeout=60))


def told(message):
    """What a message says, without the id it has here."""
    return type(message), message.content, message.name, getattr(message, "tool_calls", None), getattr(message, "tool_call_id", None)


def history():
    conversation = sys.argv[2]
    there = messages_from_dict(call("GET", f"{API}/{conversation}/messages?format=langchain")["messages"])
    assert [type(message) for message in there] == [HumanMessage, AIMessage, ToolMessage, ToolMessage, AIMessage], there
    asked = there[1]
    assert not asked.invalid_tool_calls, asked
    # Results stand in the order in which they came.
    assert {result.tool_call_id for result in there[2:4]} == {one["id"] for one in asked.tool_calls}, there
    copy = call("POST", API, {"format": "langchain", "messages": messages_to_dict(there)})["id"]
    back = messages_from_dict(call("GET", f"{API}/{copy}/messages?format=langchain")["messages"])
    assert [told(message) for message in back] == [told(message) for message in there], (back, there)
    plain = [call("GET", f"{API}/{which}/messages?format=openai")["messages"] for which in (conversation, copy)]
    return {"calls": [{"name": one["name"], "arguments": one["args"]} for one in asked.tool_calls], "text": there[-1].content, "plain": plain}


print(json.dumps(history()))
