"""An MCP server as its users write one, with the official Python SDK: over its standard input and output, or over streamable HTTP (`office.py PORT`).

It is the worked example of docs/mcp.md. `OFFICE_COUNT` names a file in which each booking is a line.
"""
import asyncio
import os
import sys

from mcp.server.mcpserver import MCPServer

server = MCPServer("office")


@server.tool()
def free_rooms(day: str, seats: int = 1) -> dict:
    """Lists the free rooms of a day, by the number of seats."""
    rooms = [{"room": "Linde", "seats": 6}, {"room": "Eiche", "seats": 12}]
    return {"day": day, "rooms": [room for room in rooms if room["seats"] >= seats]}


@server.tool()
def book_room(room: str, day: str) -> str:
    """Books a room for a day."""
    with open(os.environ["OFFICE_COUNT"], "a") as file:
        file.write(f"{room} {day}\n")
    return f"{room} is booked on {day}."


@server.tool()
def fails() -> str:
    """Always fails."""
    raise ValueError("the calendar is closed")


@server.tool()
def environment() -> dict:
    """The names of the variables that this program sees."""
    return {"names": sorted(os.environ), "pid": os.getpid()}


@server.tool()
def dies() -> str:
    """Ends the program in the middle of a call."""
    os._exit(3)


@server.tool()
async def waits(seconds: float) -> str:
    """Answers after some time."""
    await asyncio.sleep(seconds)
    return "done"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        server.run("stdio")
