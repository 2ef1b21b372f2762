"""LlamaIndex over the API named in $API: its model, and its agent for the tool of the client."""
import openai
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage, ImageBlock, TextBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai import OpenAI, OpenAIResponses
from pydantic import BaseModel

from lines import API, API_KEY, BASE_URL, PNG, refused, run

options = {"additional_kwargs": {"stream_options": {"include_usage": True}}} if API == "chat" else {}
Model = {"chat": OpenAI, "responses": OpenAIResponses}[API]
llm = Model(model="gpt-4o-mini", api_base=BASE_URL, api_key=API_KEY)
counting = Model(model="gpt-4o-mini", api_base=BASE_URL, api_key=API_KEY, **options)
called = []


class Weather(BaseModel):
    """The weather of a city."""
    city: str
    degrees: int


def my_weather(city: str) -> str:
    """The weather of a city."""
    called.append({"name": "my_weather", "arguments": {"city": city}})
    return f"sunny in {city}"


def total(raw):
    usage = raw["usage"] if isinstance(raw, dict) else getattr(raw, "usage", None) or raw.response.usage
    return usage["total_tokens"] if isinstance(usage, dict) else usage.total_tokens


def server_tool():
    pieces, last = 0, None
    for last in counting.stream_chat([ChatMessage("tea and cake please")]):
        pieces += bool(last.delta)
    return {"text": last.message.content, "pieces": pieces, "calls": last.message.additional_kwargs.get("tool_calls", []), "total_tokens": total(last.raw)}


async def client_tool():
    called.clear()
    result = await FunctionAgent(llm=llm, tools=[my_weather], system_prompt="Be brief.").run("How is the weather in Bonn?")
    return {"text": str(result), "calls": list(called)}


def image():
    message = ChatMessage(blocks=[TextBlock(text="What is this?"), ImageBlock(image=PNG, image_mimetype="image/png")])
    return {"text": llm.chat([message]).message.content}


def stop():
    stream = llm.stream_chat([ChatMessage("count")])
    first = next(part.delta for part in stream if part.delta)
    stream.close()
    return {"text": first}


run({
    "server_tool": server_tool,
    "client_tool": client_tool,
    "structured": lambda: llm.structured_predict(Weather, PromptTemplate("The weather in Bonn?")).model_dump(),
    "image": image,
    "usage": lambda: {"total_tokens": total(llm.chat([ChatMessage("tea please")]).raw)},
    "overflow": lambda: refused(lambda: llm.chat([ChatMessage("a long story")]), openai.BadRequestError),
    "stop": stop,
})
