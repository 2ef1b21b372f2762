// The Vercel AI SDK over the API named in $API; it runs the client's tool and sends the result by itself.
// Over Responses it names earlier items by their ids.
import { createOpenAI } from "@ai-sdk/openai";
import { generateObject, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";

import { API, API_KEY, BASE_URL, PNG, refused, run } from "./lines.mjs";

const openai = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY });
const model = openai[API]("gpt-4o-mini");

async function turn(options) {
  const received = { text: "", pieces: 0, calls: [] };
  const result = streamText({ model, onError: ({ error }) => { throw error; }, ...options });
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") { received.text += part.text; received.pieces += 1; }
    if (part.type === "tool-call") received.calls.push({ name: part.toolName, arguments: part.input });
  }
  return { ...received, total_tokens: (await result.totalUsage).totalTokens };
}

await run({
  server_tool: () => turn({ prompt: "tea and cake please" }),
  client_tool: () => turn({
    instructions: "Be brief.",
    prompt: "How is the weather in Bonn?",
    stopWhen: isStepCount(3),
    tools: {
      my_weather: tool({
        description: "The weather of a city",
        inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => `sunny in ${city}`,
      }),
    },
  }),
  structured: async () =>
    (await generateObject({ model, schema: z.object({ city: z.string(), degrees: z.number() }), prompt: "The weather in Bonn?" })).object,
  async image() {
    const content = [{ type: "text", text: "What is this?" }, { type: "image", image: Buffer.from(PNG, "base64"), mediaType: "image/png" }];
    return { text: (await generateText({ model, messages: [{ role: "user", content }] })).text };
  },
  usage: async () => ({ total_tokens: (await generateText({ model, prompt: "tea please" })).usage.totalTokens }),
  overflow: () => refused(() => generateText({ model, prompt: "a long story" })),
  async stop() {
    const abort = new AbortController();
    const result = streamText({ model, prompt: "count", abortSignal: abort.signal });
    for await (const text of result.textStream) {
      abort.abort();
      return { text };
    }
  },
});
