// supabase-js calls the function `chat-rag` with a key of the server. The answer is an event stream.
import { createClient } from "@supabase/supabase-js";

import { API_KEY, BASE_URL, run } from "./lines.mjs";

// Node 20 has no WebSocket, and functions need none; the package asks for the class at once.
globalThis.WebSocket ??= class {};
const supabase = createClient(BASE_URL.replace(/\/v1$/, ""), API_KEY, { auth: { persistSession: false, autoRefreshToken: false } });

async function chat(message) {
  const { data, error } = await supabase.functions.invoke("chat-rag", { body: { message } });
  if (error) throw error;
  const events = (await data.text()).split("\n\n").filter((frame) => frame.includes("event:"));
  return events.map((frame) => ({
    name: frame.match(/^event: ?(.*)$/m)[1],
    data: JSON.parse(frame.match(/^data: ?(.*)$/m)[1]),
  }));
}

const named = (events, name) => events.filter((event) => event.name === name).map((event) => event.data);

await run({
  async server_tool() {
    const events = await chat("tea and cake please");
    const tokens = named(events, "assistant_token");
    const [final] = named(events, "final");
    if (tokens.map((token) => token.content).join("") !== final.message.content) throw new Error(JSON.stringify(events));
    return { text: final.message.content, pieces: tokens.length, calls: [], total_tokens: final.usage.total_tokens };
  },
  usage: async () => ({ total_tokens: named(await chat("tea please"), "final")[0].usage.total_tokens }),
  async overflow() {
    const [error] = named(await chat("a long story"), "error");
    return { class: error.type, status: null, code: error.code, message: error.message };
  },
});
