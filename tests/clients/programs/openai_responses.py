"""The `openai` package over Responses: its own accumulator for streams, and `previous_response_id`."""
import json
import os
import sys

from openai import NotFoundError, OpenAI

client = OpenAI(base_url=os.environ["BASE_URL"], api_key=os.environ["API_KEY"], max_retries=0)
WEATHER = {"type": "function", "name": "my_weather", "description": "The weather of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}


def turn(given, **more):
    """(the response, the number of pieces of text)"""
    pieces, numbers = 0, []
    with client.responses.stream(model="gpt-4o-mini", input=given, **more) as stream:
        for event in stream:
            pieces += event.type == "response.output_text.delta" and bool(event.delta)
            numbers.append(event.sequence_number)
        response = stream.get_final_response()
    assert numbers == list(range(len(numbers))), numbers
    return response, pieces


def check_stored(response):
    """The stored response equals the stream from every sequence number on, and it can be deleted."""
    again = client.responses.retrieve(response.id)
    assert (again.output_text, again.usage) == (response.output_text, response.usage), again
    whole = list(client.responses.retrieve(response.id, stream=True))
    for after in range(len(whole)):
        rest = list(client.responses.retrieve(response.id, stream=True, starting_after=after))
        assert rest == whole[after + 1:], after
    assert client.responses.input_items.list(response.id).data[0].role == "user"
    client.responses.delete(response.id)
    try:
        client.responses.retrieve(response.id)
    except NotFoundError as error:
        assert error.code == "not_found", error
    else:
        raise AssertionError("the response was deleted")


def server_tools():
    response, pieces = turn("tea and cake please", store=True)
    assert response.status == "completed", response
    received = {"text": response.output_text, "pieces": pieces, "calls": [], "total_tokens": response.usage.total_tokens}
    received["calls"] = [item.name for item in response.output if item.type == "function_call"]
    check_stored(response)
    return received


def client_tool():
    response, _ = turn("How is the weather in Bonn?", instructions="Be brief.", tools=[WEATHER])
    calls = [item for item in response.output if item.type == "function_call"]
    outputs = [{"type": "function_call_output", "call_id": call.call_id, "output": "sunny"} for call in calls]
    answer = client.responses.create(model="gpt-4o-mini", input=outputs, previous_response_id=response.id, tools=[WEATHER])
    return {"text": answer.output_text, "calls": [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls]}


print(json.dumps({"server_tools": server_tools, "client_tool": client_tool}[sys.argv[1]]()))
