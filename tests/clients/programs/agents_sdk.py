"""The OpenAI Agents SDK with the model class of the API named in $API, with sessions that the client keeps and that the server keeps."""
import json
import tempfile

import openai
from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIConversationsSession, OpenAIResponsesModel, Runner, SQLiteSession,
                    function_tool, set_tracing_disabled)
from pydantic import BaseModel

from lines import API, API_KEY, BASE_URL, PNG_URL, refused_async, run

set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY)
model = {"chat": OpenAIChatCompletionsModel, "responses": OpenAIResponsesModel}[API](model="gpt-4o-mini", openai_client=client)
called = []


class Weather(BaseModel):
    city: str
    degrees: int


@function_tool
def my_weather(city: str) -> str:
    """The weather of a city."""
    called.append({"name": "my_weather", "arguments": {"city": city}})
    return f"sunny in {city}"


def agent(**more):
    return Agent(name="Assistant", instructions="Be brief.", model=model, model_settings=ModelSettings(include_usage=True), **more)


async def server_tool():
    text, pieces = "", 0
    result = Runner.run_streamed(agent(), "tea and cake please")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text, pieces = text + event.data.delta, pieces + 1
    assert result.final_output == text, (result.final_output, text)
    calls = [item.type for item in result.new_items if "call" in item.type]
    return {"text": text, "pieces": pieces, "calls": calls, "total_tokens": result.context_wrapper.usage.total_tokens}


async def client_tool():
    called.clear()
    result = await Runner.run(agent(tools=[my_weather]), "How is the weather in Bonn?")
    return {"text": result.final_output, "calls": list(called)}


async def structured():
    return (await Runner.run(agent(output_type=Weather), "The weather in Bonn?")).final_output.model_dump()


async def image():
    content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}]
    return {"text": (await Runner.run(agent(), [{"role": "user", "content": content}])).final_output}


async def usage():
    return {"total_tokens": (await Runner.run(agent(), "tea please")).context_wrapper.usage.total_tokens}


async def stop():
    result, text = Runner.run_streamed(agent(), "count"), None
    async for event in result.stream_events():
        if not text and event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text = event.data.delta
            result.cancel(mode="immediate")
    return {"text": text}


async def session(kind):
    """Two turns in one session."""
    kept = SQLiteSession("one", tempfile.mkdtemp() + "/session.db") if kind == "client" else OpenAIConversationsSession(openai_client=client)
    first = await Runner.run(agent(), "Remember tea.", session=kept)
    second = await Runner.run(agent(), "What did I say?", session=kept)
    items = await kept.get_items()
    return {"texts": [first.final_output, second.final_output], "items": [[item.get("role"), json.dumps(item.get("content"))] for item in items]}


run({
    "server_tool": server_tool,
    "client_tool": client_tool,
    "structured": structured,
    "image": image,
    "usage": usage,
    "overflow": lambda: refused_async(Runner.run(agent(), "a long story"), openai.BadRequestError),
    "stop": stop,
    "session": session,
})
