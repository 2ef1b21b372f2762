"""langchain-core reads a conversation that Werkruf exported, and Werkruf imports what langchain-core writes."""
import json
import os
import urllib.request

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, messages_from_dict, messages_to_dict

from lines import run

API = os.environ["BASE_URL"].removesuffix("/v1") + "/api/conversations"


def call(method, url, body=None):
    headers = {"authorization": "Bearer " + os.environ["API_KEY"], "content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers, method=method)
    return json.load(urllib.request.urlopen(request, timeout=60))


def without_id(message):
    """The content of a message, without its id on this server."""
    return type(message), message.content, message.name, getattr(message, "tool_calls", None), getattr(message, "tool_call_id", None)


def history(conversation):
    exported = messages_from_dict(call("GET", f"{API}/{conversation}/messages?format=langchain")["messages"])
    assert [type(message) for message in exported] == [HumanMessage, AIMessage, ToolMessage, ToolMessage, AIMessage], exported
    calling = exported[1]
    assert not calling.invalid_tool_calls, calling
    # Results are stored in the order in which they arrived.
    assert {result.tool_call_id for result in exported[2:4]} == {one["id"] for one in calling.tool_calls}, exported
    copy = call("POST", API, {"format": "langchain", "messages": messages_to_dict(exported)})["id"]
    imported = messages_from_dict(call("GET", f"{API}/{copy}/messages?format=langchain")["messages"])
    assert [without_id(message) for message in imported] == [without_id(message) for message in exported], (imported, exported)
    plain = [call("GET", f"{API}/{which}/messages?format=openai")["messages"] for which in (conversation, copy)]
    return {"calls": [{"name": one["name"], "arguments": one["args"]} for one in calling.tool_calls], "text": exported[-1].content, "plain": plain}


run({"history": history})
