"""instructor: every answer is an object of a class. It asks for it as a call of a tool of the client, or as a response format."""
import base64

import instructor
import openai
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel

from lines import API_KEY, BASE_URL, PNG, refusal, run

plain = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)
by_format = instructor.from_openai(plain, mode=instructor.Mode.JSON_SCHEMA)
by_tool = instructor.from_openai(plain, mode=instructor.Mode.TOOLS)


class Weather(BaseModel):
    """The weather of a city."""
    city: str
    degrees: int


class Words(BaseModel):
    text: str


def ask(client, text, wanted, **more):
    return client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": text}], response_model=wanted, **more)


def usage():
    answer, raw = by_format.chat.completions.create_with_completion(
        model="gpt-4o-mini", messages=[{"role": "user", "content": "tea please"}], response_model=Words)
    return {"total_tokens": raw.usage.total_tokens, "text": answer.text}


def overflow():
    try:
        ask(by_format, "a long story", Words, max_retries=1)
    except (openai.BadRequestError, InstructorRetryException) as error:
        cause = error if isinstance(error, openai.BadRequestError) else error.__cause__
        while cause is not None and not isinstance(cause, openai.BadRequestError):
            last = getattr(cause, "last_attempt", None)
            cause = last.exception() if last else cause.__cause__
        return refusal(cause)


def image():
    seen = instructor.Image.from_base64("data:image/png;base64," + base64.b64encode(PNG).decode())
    return {"text": ask(by_format, ["What is this?", seen], Words).text}


run({
    "structured": lambda kind="format": ask(by_format if kind == "format" else by_tool, "The weather in Bonn?", Weather).model_dump(),
    "image": image,
    "usage": usage,
    "overflow": overflow,
})
