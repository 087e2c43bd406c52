// A client of the official TypeScript SDK, which prints what it gets as one line of JSON:
// `node typescript_client.mjs ERA WHERE...`, beside a folder node_modules with the SDK. ERA is `handshake` (the SDK's version 1) or
// `stateless` (version 2), WHERE is the address of a server and a token for it, or the command of one.
// The server has the tools of npm's server-everything.
const [era, ...where] = process.argv.slice(2);
const overHttp = where[0].startsWith("http");
const capabilities = { elicitation: { form: {} }, sampling: {}, roots: {} };
const about = { name: "typescript", version: "1" };

const old = era === "handshake";
const sdk = "@modelcontextprotocol/" + (old ? "sdk/client/" : "client");
const { Client } = await import(old ? sdk + "index.js" : sdk);
const { StdioClientTransport } = await import(old ? sdk + "stdio.js" : sdk + "/stdio");
const { StreamableHTTPClientTransport } = await import(old ? sdk + "streamableHttp.js" : sdk);
const types = old ? await import("@modelcontextprotocol/sdk/types.js") : {};

const options = old ? { capabilities } : { capabilities, versionNegotiation: { mode: { pin: "2026-07-28" } } };
const client = new Client(about, options);
const faults = [];
client.onerror = (error) => faults.push(error.message);
const answer = (method, schema, handler) => client.setRequestHandler(old ? types[schema] : method, handler);
answer("elicitation/create", "ElicitRequestSchema", async () => ({ action: "accept", content: { name: "Ada", check: true } }));
answer("sampling/createMessage", "CreateMessageRequestSchema", async () => ({
  model: "m", role: "assistant", content: { type: "text", text: "said" },
}));
answer("roots/list", "ListRootsRequestSchema", async () => ({ roots: [{ uri: "file:///shop", name: "shop" }] }));

const call = async (name, args, more) => {
  const params = { name, arguments: args };
  const { _meta, ...result } = await (old ? client.callTool(params, undefined, more) : client.callTool(params, more));
  return result;
};
const refusal = async (work) => work.then(() => null, (error) => error.code);

const headers = { Authorization: "Bearer " + where[1] };
await client.connect(
  overHttp
    ? new StreamableHTTPClientTransport(new URL(where[0]), { requestInit: { headers } })
    : new StdioClientTransport({ command: where[0], args: where.slice(1), env: { ...process.env } }),
);
const found = { progress: [] };
found.tools = (await client.listTools()).tools.map((tool) => tool.name);
// The first call, in the middle of which the server asks for the folders.
found.progressed = await call("trigger-long-running-operation", { duration: 0.9, steps: 3 }, { onprogress: (one) => found.progress.push(one) });
found.asked = await call("trigger-elicitation-request", {});
found.sampled = await call("trigger-sampling-request", { prompt: "p", maxTokens: 5 });
found.roots = await call("get-roots-list", {});
found.structured = await call("get-structured-content", { location: "Chicago" });
found.links = await call("get-resource-links", { count: 2 });
found.image = await call("get-annotated-message", { messageType: "error", includeImage: true });
found.invalid = (await call("get-sum", { a: "x" })).isError;
const stop = new AbortController();
const cancelled = call("trigger-long-running-operation", { duration: 60, steps: 60 }, { signal: stop.signal, onprogress: () => stop.abort("enough") });
found.cancelled = await cancelled.then(() => "not cancelled", () => "cancelled");
found.prompt = (await client.getPrompt({ name: "args-prompt", arguments: { city: "Zürich" } })).messages;
found.read = (await client.readResource({ uri: "demo://resource/static/document/features.md" })).contents;
found.missing = await refusal(client.readResource({ uri: "demo://nowhere" }));
found.after = await call("get-sum", { a: 2, b: 3 });
found.faults = faults;
await client.close();
console.log(JSON.stringify(found));
