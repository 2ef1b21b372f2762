// The frame of a Node program: it reads the names of scenarios from its input, one per line, and prints what each received as JSON.
import readline from "node:readline";

export const { BASE_URL, API_KEY, API } = process.env;
// One white pixel.
export const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4//8/AAX+Av4N70a4AAAAAElFTkSuQmCC";

export const refusal = (error) => ({
  class: error.constructor.name, status: error.status ?? error.statusCode ?? null, code: error.code ?? error.data?.error?.code ?? null, message: error.message,
});

export async function refused(work) {
  try {
    await work();
  } catch (error) {
    return refusal(error);
  }
  throw new Error("the request was not refused");
}

export async function run(scenarios) {
  console.log("@@ " + JSON.stringify(Object.keys(scenarios).sort()));
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [name, ...args] = line.split(" ");
    let answer;
    try {
      answer = { received: await scenarios[name](...args) };
    } catch (error) {
      answer = { failure: String(error.stack ?? error).slice(-3000) };
    }
    console.log("@@ " + JSON.stringify(answer));
  }
  process.exit(0);
}
