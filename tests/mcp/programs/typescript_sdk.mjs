// The TypeScript SDK as its users use it: version 2, and version 1 with MODE=v1. Prints what it received as JSON.
const { MCP_URL, API_KEY, MODE } = process.env;
const v1 = MODE === 'v1';
const { Client } = await import(v1 ? '@modelcontextprotocol/sdk/client/index.js' : '@modelcontextprotocol/client');
const { StreamableHTTPClientTransport } = await import(v1 ? '@modelcontextprotocol/sdk/client/streamableHttp.js' : '@modelcontextprotocol/client');

const transport = new StreamableHTTPClientTransport(new URL(MCP_URL), { requestInit: { headers: { Authorization: `Bearer ${API_KEY}` } } });
const mode = MODE === 'auto' ? 'auto' : 'legacy';
const client = new Client({ name: 'outside', version: '1' }, v1 ? {} : { versionNegotiation: { mode } });
await client.connect(transport);
const { tools } = await client.listTools();
const call = (name, ...more) => (v1 ? client.callTool({ name, arguments: {} }, undefined, ...more) : client.callTool({ name, arguments: {} }, ...more));
const allowed = await call('get_todos');
const refused = await call('get_requests');
const progress = [];
await call('test_tool_with_progress', { onprogress: (report) => progress.push([report.progress, report.total ?? null, report.message ?? null]) });
const { resourceTemplates } = await client.listResourceTemplates();
console.log(JSON.stringify({
  version: v1 ? transport.protocolVersion : client.getNegotiatedProtocolVersion(),
  tools: tools.map((tool) => tool.name),
  allowed: [Boolean(allowed.isError), allowed.structuredContent ?? null],
  refused: [Boolean(refused.isError), refused.structuredContent ?? null, refused.content[0].text],
  progress,
  templates: resourceTemplates.map((template) => template.uriTemplate),
}));
await client.close();
