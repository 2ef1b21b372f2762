// The `openai` package in a page of another origin, in Debian's Chromium. A browser asks before it sends the package's own headers.
import http from "node:http";
import os from "node:os";
import fs from "node:fs";
import path from "node:path";

import { build } from "esbuild";
import { chromium } from "playwright-core";

import { API, API_KEY, BASE_URL, run } from "./lines.mjs";

const page_source = `
import OpenAI from "openai";
import { refused } from "./lines.mjs";
import { scenarios } from "./openai_scenarios.mjs";
const client = new OpenAI({ baseURL: "${BASE_URL}", apiKey: "${API_KEY}", dangerouslyAllowBrowser: true });
window.scenarios = scenarios(client, "${API}", refused);
`;
// The frame of the Node programs is not for browsers, apart from `refused`.
const without_node = { name: "without-node", setup: (made) => {
  made.onResolve({ filter: /^node:readline$/ }, () => ({ path: "readline", namespace: "empty" }));
  made.onLoad({ filter: /.*/, namespace: "empty" }, () => ({ contents: "export default {}" }));
} };
const { outputFiles } = await build({
  stdin: { contents: page_source, resolveDir: process.cwd() }, bundle: true, write: false, format: "esm", platform: "browser", plugins: [without_node],
  define: { "process.env": "{}" }, logLevel: "error",
});

const files = { "/": ["text/html", "<!doctype html><script type=module src=/page.js></script>"], "/page.js": ["text/javascript", outputFiles[0].text] };
const site = http.createServer((request, response) => {
  const [kind, content] = files[request.url] ?? ["text/plain", ""];
  response.writeHead(files[request.url] ? 200 : 404, { "content-type": kind }).end(content);
});
await new Promise((resolve) => site.listen(Number(process.env.PAGE_PORT), "127.0.0.1", resolve));

const profile = fs.mkdtempSync(path.join(os.tmpdir(), "werkruf-page-"));
const browser = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.CHROMIUM, headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
process.on("exit", () => fs.rmSync(profile, { recursive: true, force: true }));
const page = await browser.newPage();
await page.goto(`http://127.0.0.1:${process.env.PAGE_PORT}/`);
await page.waitForFunction(() => window.scenarios);

const names = await page.evaluate(() => Object.keys(window.scenarios));
await run(Object.fromEntries(names.map((name) => [name, () => page.evaluate((name) => window.scenarios[name](), name)])));
