"""pydantic-ai with the model class of the API named in $API. It asks for the class of the answer as a response format."""
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from lines import API, API_KEY, BASE_URL, PNG, refused_async, run

model = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[API]("gpt-4o-mini", provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY))
called = []


class Weather(BaseModel):
    city: str
    degrees: int


def my_weather(city: str) -> str:
    """The weather of a city."""
    called.append({"name": "my_weather", "arguments": {"city": city}})
    return f"sunny in {city}"


def total(usage):
    return (usage() if callable(usage) else usage).total_tokens


async def server_tool():
    text, pieces = "", 0
    async with Agent(model).run_stream("tea and cake please") as result:
        async for delta in result.stream_text(delta=True, debounce_by=None):
            text, pieces = text + delta, pieces + 1
    calls = [part.tool_name for message in result.all_messages() for part in message.parts if part.part_kind == "tool-call"]
    return {"text": text, "pieces": pieces, "calls": calls, "total_tokens": total(result.usage)}


async def client_tool():
    called.clear()
    result = await Agent(model, instructions="Be brief.", tools=[my_weather]).run("How is the weather in Bonn?")
    return {"text": result.output, "calls": list(called)}


async def structured(kind="native"):
    wanted = NativeOutput(Weather) if kind == "native" else Weather
    return (await Agent(model, output_type=wanted).run("The weather in Bonn?")).output.model_dump()


async def image():
    return {"text": (await Agent(model).run(["What is this?", BinaryContent(PNG, media_type="image/png")])).output}


async def usage():
    return {"total_tokens": total((await Agent(model).run("tea please")).usage)}


async def stop():
    async with Agent(model).run_stream("count") as result:
        async for delta in result.stream_text(delta=True, debounce_by=None):
            return {"text": delta}


run({
    "server_tool": server_tool,
    "client_tool": client_tool,
    "structured": structured,
    "image": image,
    "usage": usage,
    "overflow": lambda: refused_async(Agent(model).run("a long story"), ModelHTTPError),
    "stop": stop,
})
