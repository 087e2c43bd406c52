// A plugin in JavaScript: one JSON object in each line of standard input and output. What it logs goes to standard error.
"use strict";

const METRES = { metre: 1, foot: 0.3048, mile: 1609.344 };
const running = new Map();

const send = (message) => process.stdout.write(JSON.stringify(message) + "\n");

const tools = {
  convert_length({ value, from, to }) {
    return { value: (value * METRES[from]) / METRES[to], unit: to };
  },

  async count_down({ start }, call) {
    for (let left = start; left > 0; left--) {
      if (call.cancelled) throw Object.assign(new Error("it was cancelled"), { code: "cancelled" });
      send({ kind: "progress", id: call.id, text: `${left}` });
      await new Promise((done) => setTimeout(done, 100));
    }
    return "zero";
  },
};

async function answer({ id, tool, arguments: given }) {
  const call = { id, cancelled: false };
  running.set(id, call);
  try {
    if (!Object.hasOwn(tools, tool)) throw Object.assign(new Error(`there is no tool ${tool}`), { notDone: true });
    const value = await tools[tool](given, call);
    send({ kind: "result", id, value: value ?? null }); // a result needs a value, also if the tool returns nothing
  } catch (error) {
    const code = error?.code ?? error?.name;
    send({ kind: "error", id, message: String(error?.message ?? error), code, not_done: error?.notDone ?? false });
  } finally {
    running.delete(id);
  }
}

const handlers = {
  hello: () => send({ kind: "ready", name: "units", version: "1.0" }),
  call: answer,
  cancel: ({ id }) => {
    if (running.has(id)) running.get(id).cancelled = true;
  },
  ping: () => send({ kind: "pong" }),
  shutdown: () => process.exit(0),
};

require("node:readline")
  .createInterface({ input: process.stdin })
  .on("line", (line) => {
    const message = JSON.parse(line);
    handlers[message.kind]?.(message); // kinds that are not known are ignored
  })
  .on("close", () => process.exit(0));
