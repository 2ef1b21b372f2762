"""`llm`, Simon Willison's command and library, with a model that its configuration names."""
import json
import os
import pathlib
import tempfile

folder = pathlib.Path(tempfile.mkdtemp())
os.environ["LLM_USER_PATH"] = str(folder)
(folder / "extra-openai-models.yaml").write_text(json.dumps([{
    "model_id": "werkruf", "model_name": "gpt-4o-mini", "api_base": os.environ["BASE_URL"], "api_key_name": "werkruf",
    "supports_tools": True, "supports_schema": True, "vision": True,
}]))
(folder / "keys.json").write_text(json.dumps({"werkruf": os.environ["API_KEY"]}))

import llm  # noqa: E402
import openai  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from lines import PNG, refused, run  # noqa: E402

model = llm.get_model("werkruf")
called = []


class Weather(BaseModel):
    city: str
    degrees: int


def my_weather(city: str) -> str:
    """The weather of a city."""
    called.append({"name": "my_weather", "arguments": {"city": city}})
    return f"sunny in {city}"


def server_tool():
    response = model.prompt("tea and cake please")
    pieces = [piece for piece in response if piece]
    used = response.usage()
    return {"text": "".join(pieces), "pieces": len(pieces), "calls": [str(c) for c in response.tool_calls()], "total_tokens": used.input + used.output}


def client_tool():
    called.clear()
    return {"text": model.chain("How is the weather in Bonn?", system="Be brief.", tools=[my_weather]).text(), "calls": list(called)}


def usage():
    response = model.prompt("tea please", stream=False)
    response.text()
    return {"total_tokens": response.usage().input + response.usage().output}


def stop():
    pieces = iter(model.prompt("count"))
    first = next(piece for piece in pieces if piece)
    pieces.close()
    return {"text": first}


run({
    "server_tool": server_tool,
    "client_tool": client_tool,
    "structured": lambda: json.loads(model.prompt("The weather in Bonn?", schema=Weather, stream=False).text()),
    "image": lambda: {"text": model.prompt("What is this?", attachments=[llm.Attachment(content=PNG, type="image/png")], stream=False).text()},
    "usage": usage,
    "overflow": lambda: refused(lambda: model.prompt("a long story", stream=False).text(), openai.BadRequestError),
    "stop": stop,
})
