// The `openai` package in Node, over the API named in $API.
import OpenAI from "openai";

import { API, API_KEY, BASE_URL, refused, run } from "./lines.mjs";
import { scenarios } from "./openai_scenarios.mjs";

await run(scenarios(new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY }), API, refused));
