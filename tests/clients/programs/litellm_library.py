"""LiteLLM as a library over the API named in $API."""
import json

import litellm
from pydantic import BaseModel

from lines import API, API_KEY, BASE_URL, PNG_URL, refused, run

litellm.suppress_debug_info = True
WHERE = {"model": "openai/gpt-4o-mini", "api_base": BASE_URL, "api_key": API_KEY}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Weather(BaseModel):
    city: str
    degrees: int


def user(text):
    return [{"role": "user", "content": text}]


class Chat:
    TOOL = {"type": "function", "function": {"name": "my_weather", "description": "The weather of a city", "parameters": PARAMETERS}}

    def server_tool(self):
        chunks = list(litellm.completion(**WHERE, messages=user("tea and cake please"), stream=True, stream_options={"include_usage": True}))
        whole = litellm.stream_chunk_builder(chunks)
        pieces = sum(bool(c.choices and c.choices[0].delta.content) for c in chunks)
        message = whole.choices[0].message
        return {"text": message.content, "pieces": pieces, "calls": message.tool_calls or [], "total_tokens": whole.usage.total_tokens}

    def client_tool(self):
        messages = user("How is the weather in Bonn?")
        asked = litellm.completion(**WHERE, messages=messages, tools=[self.TOOL]).choices[0].message
        messages.append(asked.model_dump())
        messages += [{"role": "tool", "tool_call_id": c.id, "content": "sunny in Bonn"} for c in asked.tool_calls]
        calls = [{"name": c.function.name, "arguments": json.loads(c.function.arguments)} for c in asked.tool_calls]
        return {"text": litellm.completion(**WHERE, messages=messages, tools=[self.TOOL]).choices[0].message.content, "calls": calls}

    def structured(self):
        answer = litellm.completion(**WHERE, messages=user("The weather in Bonn?"), response_format=Weather)
        return Weather.model_validate_json(answer.choices[0].message.content).model_dump()

    def image(self):
        content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": PNG_URL}}]
        return {"text": litellm.completion(**WHERE, messages=user(content)).choices[0].message.content}

    def usage(self):
        return {"total_tokens": litellm.completion(**WHERE, messages=user("tea please")).usage.total_tokens}

    def overflow(self):
        return refused(lambda: litellm.completion(**WHERE, messages=user("a long story")), litellm.ContextWindowExceededError)

    def stop(self):
        stream = litellm.completion(**WHERE, messages=user("count"), stream=True)
        first = next(c.choices[0].delta.content for c in stream if c.choices and c.choices[0].delta.content)
        stream.completion_stream.close()
        return {"text": first}


class Responses:
    TOOL = {"type": "function", "name": "my_weather", "description": "The weather of a city", "parameters": PARAMETERS}

    def server_tool(self):
        events = list(litellm.responses(**WHERE, input="tea and cake please", stream=True))
        deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
        whole = events[-1].response
        calls = [i for i in whole.output if i.type == "function_call"]
        return {"text": "".join(deltas), "pieces": len(deltas), "calls": calls, "total_tokens": whole.usage.total_tokens}

    def client_tool(self):
        asked = litellm.responses(**WHERE, input="How is the weather in Bonn?", tools=[self.TOOL])
        wanted = [i for i in asked.output if i.type == "function_call"]
        results = [{"type": "function_call_output", "call_id": c.call_id, "output": "sunny in Bonn"} for c in wanted]
        answer = litellm.responses(**WHERE, input=results, previous_response_id=asked.id, tools=[self.TOOL])
        return {"text": answer.output[-1].content[0].text, "calls": [{"name": c.name, "arguments": json.loads(c.arguments)} for c in wanted]}

    def structured(self):
        answer = litellm.responses(**WHERE, input="The weather in Bonn?", text_format=Weather)
        return Weather.model_validate_json(answer.output[-1].content[0].text).model_dump()

    def image(self):
        content = [{"type": "input_text", "text": "What is this?"}, {"type": "input_image", "image_url": PNG_URL, "detail": "auto"}]
        return {"text": litellm.responses(**WHERE, input=user(content)).output[-1].content[0].text}

    def usage(self):
        return {"total_tokens": litellm.responses(**WHERE, input="tea please").usage.total_tokens}

    def overflow(self):
        return refused(lambda: litellm.responses(**WHERE, input="a long story"), litellm.ContextWindowExceededError)

    def stop(self):
        stream = litellm.responses(**WHERE, input="count", stream=True)
        first = next(e.delta for e in stream if e.type == "response.output_text.delta")
        stream.response.close()
        return {"text": first}


api = {"chat": Chat, "responses": Responses}[API]()
run({name: getattr(api, name) for name in ("server_tool", "client_tool", "structured", "image", "usage", "overflow", "stop")})
