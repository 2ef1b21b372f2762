"""`langchain-openai` over the API named in $API: the model alone, which sends the whole history with every request."""
import openai
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from lines import API, API_KEY, BASE_URL, PNG_URL, refused, run

options = {"chat": {"stream_usage": True}, "responses": {"use_responses_api": True}}[API]
model = ChatOpenAI(model="gpt-4o-mini", base_url=BASE_URL, api_key=API_KEY, **options)


class Weather(BaseModel):
    """The weather of a city."""
    city: str
    degrees: int


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


def server_tool():
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
    whole = turn(bound, messages)[0] if API == "chat" else bound.invoke(messages)
    return {"text": text(whole), "calls": [{"name": call["name"], "arguments": call["args"]} for call in calling.tool_calls]}


def image():
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PNG_URL}}]
    return {"text": text(model.invoke([HumanMessage(content)]))}


def stop():
    stream = model.stream([HumanMessage("count")])
    first = next(text(chunk) for chunk in stream if text(chunk))
    stream.close()
    return {"text": first}


run({
    "server_tool": server_tool,
    "client_tool": client_tool,
    "structured": lambda: model.with_structured_output(Weather).invoke("The weather in Bonn?").model_dump(),
    "image": image,
    "usage": lambda: {"total_tokens": model.invoke("tea please").usage_metadata["total_tokens"]},
    "overflow": lambda: refused(lambda: model.invoke("a long story"), openai.BadRequestError),
    "stop": stop,
})
