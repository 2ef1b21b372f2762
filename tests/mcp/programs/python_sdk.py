"""The Python SDK as its users use it. Prints what it received as JSON."""
import asyncio
import json
import os

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


async def main():
    reports = []

    async def report(progress, total, message):
        reports.append([progress, total, message])

    headers = {"Authorization": "Bearer " + os.environ["API_KEY"]}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with Client(streamable_http_client(os.environ["MCP_URL"], http_client=http), mode=os.environ["MODE"]) as client:
            tools = await client.list_tools()
            allowed = await client.call_tool("get_todos", {})
            refused = await client.call_tool("get_requests", {})
            await client.call_tool("test_tool_with_progress", {}, progress_callback=report)
            resources = await client.list_resource_templates()
            print(json.dumps({
                "version": client.protocol_version,
                "tools": [tool.name for tool in tools.tools],
                "allowed": [bool(allowed.is_error), allowed.structured_content],
                "refused": [bool(refused.is_error), refused.structured_content, refused.content[0].text],
                "progress": reports,
                "templates": [template.uri_template for template in resources.resource_templates],
            }))


asyncio.run(main())
