// The Vercel AI SDK over the API named in $API; it runs the client's tool and sends the result by itself.
// Over Responses it names earlier items by their ids.
import { createOpenAI } from "@ai-sdk/openai";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const openai = createOpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY });
const model = openai[process.env.API]("gpt-4o-mini");

async function turn(options) {
  const received = { text: "", pieces: 0, calls: [] };
  const result = streamText({ model, maxRetries: 0, onError: ({ error }) => { throw error; }, ...options });
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    if (part.type === "text-delta") { received.text += part.text; received.pieces += 1; }
    if (part.type === "tool-call") received.calls.push({ name: part.toolName, arguments: part.input });
  }
  return { ...received, total_tokens: (await result.totalUsage).totalTokens };
}

const scenes = {
  server_tools: () => turn({ prompt: "tea and cake please" }),
  client_tool: () => turn({
    system: "Be brief.",
    prompt: "How is the weather in Bonn?",
    stopWhen: stepCountIs(3),
    tools: {
      my_weather: tool({
        description: "The weather of a city",
        inputSchema: z.object({ city: z.string() }),
        execute: async ({ city }) => `sunny in ${city}`,
      }),
    },
  }),
};

console.log(JSON.stringify(await scenes[process.argv[2]]()));
