"""The `openai` package over the API named in $API: streams and their helpers, parse, and images."""
import json

import openai
from pydantic import BaseModel

from lines import API, API_KEY, BASE_URL, PNG_URL, refused, run

client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)
MODEL = "gpt-4o-mini"


class Weather(BaseModel):
    city: str
    degrees: int


PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}
CHAT_TOOL = {"type": "function", "function": {"name": "my_weather", "description": "The weather of a city", "parameters": PARAMETERS}}
RESPONSES_TOOL = {"type": "function", "name": "my_weather", "description": "The weather of a city", "parameters": PARAMETERS, "strict": True}


def user(text):
    return [{"role": "user", "content": text}]


def check_stored(response):
    """The stored response equals the stream from every sequence number on, and it can be deleted."""
    again = client.responses.retrieve(response.id)
    assert (again.output_text, again.usage) == (response.output_text, response.usage), again
    whole = list(client.responses.retrieve(response.id, stream=True))
    for after in range(len(whole)):
        assert list(client.responses.retrieve(response.id, stream=True, starting_after=after)) == whole[after + 1:], after
    assert client.responses.input_items.list(response.id).data[0].role == "user"
    client.responses.delete(response.id)
    assert refused(lambda: client.responses.retrieve(response.id), openai.NotFoundError)["code"] == "not_found"


class Chat:
    def server_tool(self):
        assert "default" in [model.id for model in client.models.list()]
        text, pieces, total = "", 0, None
        with client.chat.completions.stream(model=MODEL, messages=user("tea and cake please"), stream_options={"include_usage": True}) as stream:
            for event in stream:
                if event.type == "content.delta":
                    text, pieces = text + event.delta, pieces + 1
            whole = stream.get_final_completion()
        assert whole.choices[0].message.content == text
        return {"text": text, "pieces": pieces, "calls": [c.function.name for c in whole.choices[0].message.tool_calls or []], "total_tokens": whole.usage.total_tokens}

    def client_tool(self):
        messages = [{"role": "system", "content": "Be brief."}] + user("How is the weather in Bonn?")
        asked = client.chat.completions.create(model=MODEL, messages=messages, tools=[CHAT_TOOL]).choices[0].message
        messages.append(asked)
        calls = [{"name": c.function.name, "arguments": json.loads(c.function.arguments)} for c in asked.tool_calls]
        messages += [{"role": "tool", "tool_call_id": c.id, "content": "sunny in Bonn"} for c in asked.tool_calls]
        answer = client.chat.completions.create(model=MODEL, messages=messages, tools=[CHAT_TOOL])
        return {"text": answer.choices[0].message.content, "calls": calls}

    def structured(self):
        parsed = client.chat.completions.parse(model=MODEL, messages=user("The weather in Bonn?"), response_format=Weather)
        return parsed.choices[0].message.parsed.model_dump()

    def image(self):
        content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PNG_URL}}]
        return {"text": client.chat.completions.create(model=MODEL, messages=user(content)).choices[0].message.content}

    def usage(self):
        return {"total_tokens": client.chat.completions.create(model=MODEL, messages=user("tea please")).usage.total_tokens}

    def overflow(self):
        return refused(lambda: client.chat.completions.create(model=MODEL, messages=user("a long story")), openai.BadRequestError)

    def stop(self):
        with client.chat.completions.create(model=MODEL, messages=user("count"), stream=True) as stream:
            for part in stream:
                if part.choices and part.choices[0].delta.content:
                    return {"text": part.choices[0].delta.content}


class Responses:
    def server_tool(self):
        text, pieces, numbers = "", 0, []
        with client.responses.stream(model=MODEL, input="tea and cake please", store=True) as stream:
            for event in stream:
                numbers.append(event.sequence_number)
                if event.type == "response.output_text.delta":
                    text, pieces = text + event.delta, pieces + 1
            whole = stream.get_final_response()
        assert whole.output_text == text and whole.status == "completed", whole
        assert numbers == list(range(len(numbers))), numbers
        check_stored(whole)
        return {"text": text, "pieces": pieces, "calls": [i.name for i in whole.output if i.type == "function_call"], "total_tokens": whole.usage.total_tokens}

    def client_tool(self):
        asked = client.responses.create(model=MODEL, instructions="Be brief.", input="How is the weather in Bonn?", tools=[RESPONSES_TOOL])
        wanted = [i for i in asked.output if i.type == "function_call"]
        results = [{"type": "function_call_output", "call_id": c.call_id, "output": "sunny in Bonn"} for c in wanted]
        answer = client.responses.create(model=MODEL, input=results, previous_response_id=asked.id, tools=[RESPONSES_TOOL])
        return {"text": answer.output_text, "calls": [{"name": c.name, "arguments": json.loads(c.arguments)} for c in wanted]}

    def structured(self):
        return client.responses.parse(model=MODEL, input="The weather in Bonn?", text_format=Weather).output_parsed.model_dump()

    def image(self):
        content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}]
        return {"text": client.responses.create(model=MODEL, input=user(content)).output_text}

    def usage(self):
        return {"total_tokens": client.responses.create(model=MODEL, input="tea please").usage.total_tokens}

    def overflow(self):
        return refused(lambda: client.responses.create(model=MODEL, input="a long story"), openai.BadRequestError)

    def stop(self):
        with client.responses.create(model=MODEL, input="count", stream=True) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    return {"text": event.delta}


api = {"chat": Chat, "responses": Responses}[API]()
run({name: getattr(api, name) for name in ("server_tool", "client_tool", "structured", "image", "usage", "overflow", "stop")})
