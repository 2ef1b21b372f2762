// The scenarios of the `openai` package for JavaScript, for Node and for browsers: streams and their helpers, parse, and runTools.
import { zodFunction, zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

// One white pixel.
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC";

const model = "gpt-4o-mini";
const Weather = z.object({ city: z.string(), degrees: z.number() });
const City = z.object({ city: z.string() });
const user = (content) => [{ role: "user", content }];
const sunny = ({ city }) => `sunny in ${city}`;

export function scenarios(client, api, refused) {
  const chat = {
    async server_tool() {
      let text = "", pieces = 0;
      const stream = client.chat.completions.stream({ model, messages: user("tea and cake please"), stream_options: { include_usage: true } });
      stream.on("content", (delta) => { text += delta; pieces += 1; });
      const whole = await stream.finalChatCompletion();
      const { content, tool_calls } = whole.choices[0].message;
      if (content !== text) throw new Error(`${content} is not ${text}`);
      return { text, pieces, calls: tool_calls ?? [], total_tokens: whole.usage.total_tokens };
    },
    async client_tool() {
      const calls = [];
      const note = (value) => { calls.push({ name: "my_weather", arguments: value }); return sunny(value); };
      const tool = zodFunction({ name: "my_weather", description: "The weather of a city", parameters: City, function: note });
      const runner = client.chat.completions.runTools({ model, messages: user("How is the weather in Bonn?"), tools: [tool] });
      return { text: await runner.finalContent(), calls };
    },
    async structured() {
      const answer = await client.chat.completions.parse({ model, messages: user("The weather in Bonn?"), response_format: zodResponseFormat(Weather, "weather") });
      return answer.choices[0].message.parsed;
    },
    async image() {
      const content = [{ type: "text", text: "What is this?" }, { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } }];
      return { text: (await client.chat.completions.create({ model, messages: user(content) })).choices[0].message.content };
    },
    usage: async () => ({ total_tokens: (await client.chat.completions.create({ model, messages: user("tea please") })).usage.total_tokens }),
    overflow: () => refused(() => client.chat.completions.create({ model, messages: user("a long story") })),
    async stop() {
      const stream = await client.chat.completions.create({ model, messages: user("count"), stream: true });
      for await (const part of stream) {
        const text = part.choices[0]?.delta?.content;
        if (text) return { text };
      }
    },
  };

  const responses = {
    async server_tool() {
      let text = "", pieces = 0;
      const stream = client.responses.stream({ model, input: "tea and cake please" });
      stream.on("response.output_text.delta", ({ delta }) => { text += delta; pieces += 1; });
      const whole = await stream.finalResponse();
      if (whole.output_text !== text) throw new Error(`${whole.output_text} is not ${text}`);
      return { text, pieces, calls: whole.output.filter((item) => item.type === "function_call"), total_tokens: whole.usage.total_tokens };
    },
    async client_tool() {
      const tools = [{ type: "function", name: "my_weather", description: "The weather of a city", strict: true, parameters: z.toJSONSchema(City) }];
      const asked = await client.responses.create({ model, input: "How is the weather in Bonn?", tools });
      const wanted = asked.output.filter((item) => item.type === "function_call");
      const calls = wanted.map((call) => ({ name: call.name, arguments: JSON.parse(call.arguments) }));
      const input = wanted.map((call, at) => ({ type: "function_call_output", call_id: call.call_id, output: sunny(calls[at].arguments) }));
      const answer = await client.responses.create({ model, input, previous_response_id: asked.id, tools });
      return { text: answer.output_text, calls };
    },
    async structured() {
      return (await client.responses.parse({ model, input: "The weather in Bonn?", text: { format: zodTextFormat(Weather, "weather") } })).output_parsed;
    },
    async image() {
      const content = [{ type: "input_text", text: "What is this?" }, { type: "input_image", detail: "auto", image_url: `data:image/png;base64,${PNG}` }];
      return { text: (await client.responses.create({ model, input: user(content) })).output_text };
    },
    usage: async () => ({ total_tokens: (await client.responses.create({ model, input: "tea please" })).usage.total_tokens }),
    overflow: () => refused(() => client.responses.create({ model, input: "a long story" })),
    async stop() {
      const stream = await client.responses.create({ model, input: "count", stream: true });
      for await (const event of stream) {
        if (event.type === "response.output_text.delta") return { text: event.delta };
      }
    },
  };

  return { chat, responses }[api];
}
