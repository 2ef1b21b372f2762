"""A LangGraph agent (`create_agent` of langchain) over the API named in $API, with a tool and a response format."""
import openai
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from lines import API, API_KEY, BASE_URL, PNG_URL, refused, run

options = {"chat": {"stream_usage": True}, "responses": {"use_responses_api": True}}[API]
model = ChatOpenAI(model="gpt-4o-mini", base_url=BASE_URL, api_key=API_KEY, **options)
LIMIT = {"recursion_limit": 12}
called = []


class Weather(BaseModel):
    """The weather of a city."""
    city: str
    degrees: int


@tool
def my_weather(city: str) -> str:
    """The weather of a city."""
    called.append({"name": "my_weather", "arguments": {"city": city}})
    return f"sunny in {city}"


def asked(text):
    return {"messages": [{"role": "user", "content": text}]}


def text(message):
    if isinstance(message.content, str):
        return message.content
    return "".join(part if isinstance(part, str) else part.get("text", "") for part in message.content)


def server_tool():
    words, pieces, total, calls = "", 0, 0, []
    for chunk, _ in create_agent(model, []).stream(asked("tea and cake please"), LIMIT, stream_mode="messages"):
        words, pieces = words + text(chunk), pieces + bool(text(chunk))
        calls += chunk.tool_calls
        total += (chunk.usage_metadata or {}).get("total_tokens", 0)
    return {"text": words, "pieces": pieces, "calls": calls, "total_tokens": total}


def client_tool():
    called.clear()
    whole = create_agent(model, [my_weather], system_prompt="Be brief.").invoke(asked("How is the weather in Bonn?"), LIMIT)
    return {"text": text(whole["messages"][-1]), "calls": list(called)}


def structured(strategy="provider"):
    wanted = {"provider": ProviderStrategy, "tool": ToolStrategy}[strategy](Weather)
    whole = create_agent(model, [my_weather], response_format=wanted).invoke(asked("The weather in Bonn?"), LIMIT)
    return whole["structured_response"].model_dump()


def image():
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PNG_URL}}]
    return {"text": text(create_agent(model, []).invoke(asked(content), LIMIT)["messages"][-1])}


def usage():
    whole = create_agent(model, []).invoke(asked("tea please"), LIMIT)
    return {"total_tokens": sum(m.usage_metadata["total_tokens"] for m in whole["messages"] if getattr(m, "usage_metadata", None))}


async def stop():
    stream = create_agent(model, []).astream(asked("count"), LIMIT, stream_mode="messages")
    async for chunk, _ in stream:
        if text(chunk):
            await stream.aclose()
            return {"text": text(chunk)}


run({
    "server_tool": server_tool,
    "client_tool": client_tool,
    "structured": structured,
    "image": image,
    "usage": usage,
    "overflow": lambda: refused(lambda: create_agent(model, []).invoke(asked("a long story"), LIMIT), openai.BadRequestError),
    "stop": stop,
})
