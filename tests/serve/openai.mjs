// SPDX-License-Identifier: MIT
// openai.mjs FOLDER URL KEY [tools]: calls `berth serve` with npm's openai from FOLDER/node_modules. Prints one line per failed check.
import { createRequire } from "node:module";
import { strict as assert } from "node:assert";

const [folder, url, key, part] = process.argv.slice(2);
const require = createRequire(folder + "/client.js");
const { OpenAI } = require("openai");
const client = new OpenAI({ baseURL: url + "/v1", apiKey: key, maxRetries: 0, timeout: 60000 });
const story = [{ role: "user", content: "Tell me a story about a ship." }];
let model = "";
let nFailed = 0;
let nChecks = 0;

// The checks of tools need another server than the others.
async function check(name, run) {
  if ((part === "tools") !== name.startsWith("tools")) {
    return;
  }
  nChecks++;
  try {
    await run();
  } catch (e) {
    console.log(`FAILED: ${name}: ${e.stack ?? e}`);
    nFailed++;
  }
}

await check("models", async () => {
  const list = await client.models.list();
  model = list.data[0].id;
  assert.equal((await client.models.retrieve(model)).id, model);
});

await check("chat", async () => {
  const options = { model, messages: story, max_tokens: 12, seed: 7, temperature: 0.5 };
  const a = await client.chat.completions.create(options);
  assert.equal(a.object, "chat.completion");
  assert.equal(a.choices[0].message.role, "assistant");
  assert.ok(a.choices[0].message.content.length > 0);
  assert.ok(["stop", "length"].includes(a.choices[0].finish_reason));
  assert.ok(a.usage.prompt_tokens > 0 && a.usage.completion_tokens <= 12);
  assert.equal(a.usage.total_tokens, a.usage.prompt_tokens + a.usage.completion_tokens);
  const b = await client.chat.completions.create(options);
  assert.equal(b.choices[0].message.content, a.choices[0].message.content, "the same seed gives the same text");
});

await check("stream", async () => {
  const options = { model, messages: story, max_tokens: 12, seed: 7, temperature: 0.5 };
  const whole = await client.chat.completions.create(options);
  const stream = await client.chat.completions.create({ ...options, stream: true, stream_options: { include_usage: true } });
  let text = "";
  let usage = null;
  let end = null;
  let n = 0;
  for await (const chunk of stream) {
    n++;
    text += chunk.choices[0]?.delta?.content ?? "";
    end = chunk.choices[0]?.finish_reason ?? end;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(end, whole.choices[0].finish_reason);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.ok(n >= 2, `${n} events`); // tokens may share an event
});

await check("stream helper", async () => {
  const runner = client.chat.completions.stream({ model, messages: story, max_tokens: 8, seed: 1 });
  const final = await runner.finalChatCompletion();
  assert.ok(final.choices[0].message.content.length > 0);
});

await check("stream is stopped by the client", async () => {
  const stream = await client.chat.completions.create({ model, messages: story, max_tokens: 100, stream: true });
  for await (const chunk of stream) {
    assert.equal(chunk.object, "chat.completion.chunk");
    break;
  }
  stream.controller.abort();
});

await check("several answers", async () => {
  const a = await client.chat.completions.create({ model, messages: story, max_tokens: 6, n: 3, seed: 3 });
  assert.deepEqual(a.choices.map((c) => c.index), [0, 1, 2]);
});

await check("completions", async () => {
  const a = await client.completions.create({ model, prompt: ["Once upon a time", "The sea"], max_tokens: 5, temperature: 0, logprobs: 2 });
  assert.equal(a.choices.length, 2);
  assert.ok(a.choices[0].logprobs.tokens.length > 0);
  assert.ok(a.choices[0].logprobs.token_logprobs.every((x) => x <= 0));
});

await check("log probabilities", async () => {
  const a = await client.chat.completions.create({ model, messages: story, max_tokens: 4, logprobs: true, top_logprobs: 3, temperature: 0 });
  const content = a.choices[0].logprobs.content;
  assert.equal(content.length, a.usage.completion_tokens);
  assert.equal(content[0].top_logprobs.length, 3);
  assert.equal(content[0].token, content[0].top_logprobs[0].token, "temperature 0 takes the most probable token");
});

await check("stop", async () => {
  const options = { model, prompt: "Once upon a time", max_tokens: 20, temperature: 0 };
  const whole = (await client.completions.create(options)).choices[0].text;
  const stop = whole.slice(8, 11);
  const cut = (await client.completions.create({ ...options, stop })).choices[0];
  assert.equal(cut.text, whole.slice(0, whole.indexOf(stop)));
  assert.equal(cut.finish_reason, "stop");
});

await check("embeddings", async () => {
  const a = await client.embeddings.create({ model, input: ["the cat", "the dog"] });
  const b = await client.embeddings.create({ model, input: "the cat", encoding_format: "float" });
  assert.equal(a.data.length, 2);
  const length = Math.sqrt(a.data[0].embedding.reduce((sum, x) => sum + x * x, 0));
  assert.ok(Math.abs(length - 1) < 1e-4, `length ${length}`);
  assert.equal(a.data[0].embedding.length, b.data[0].embedding.length);
  assert.ok(a.data[0].embedding.every((x, i) => Math.abs(x - b.data[0].embedding[i]) < 1e-5), "base64 and floats agree");
});

await check("JSON schema", async () => {
  const schema = {
    type: "object",
    properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer" }, kind: { enum: ["cat", "dog"] } },
    required: ["name", "age", "kind"],
    additionalProperties: false,
  };
  const a = await client.chat.completions.create({
    model, messages: story, max_tokens: 120, seed: 5,
    response_format: { type: "json_schema", json_schema: { name: "animal", strict: true, schema } },
  });
  if (a.choices[0].finish_reason === "stop") {
    const value = JSON.parse(a.choices[0].message.content);
    assert.ok(Number.isInteger(value.age) && typeof value.name === "string" && ["cat", "dog"].includes(value.kind));
  }
  assert.ok(a.choices[0].message.content.trimStart().startsWith("{"));
});

await check("JSON object", async () => {
  const a = await client.chat.completions.create({ model, messages: story, max_tokens: 10, response_format: { type: "json_object" } });
  assert.ok(a.choices[0].message.content.trimStart().startsWith("{"));
});

async function fails(type, run) {
  try {
    await run();
  } catch (e) {
    assert.ok(e instanceof type, `${e.constructor.name}: ${e.message}`);
    return e;
  }
  assert.fail("no error");
}

await check("errors", async () => {
  const chat = (more) => client.chat.completions.create({ model, messages: story, max_tokens: 4, ...more });
  let e = await fails(OpenAI.BadRequestError, () => chat({ temperature: 9 }));
  assert.equal(e.param, "temperature");
  assert.equal(e.type, "invalid_request_error");
  e = await fails(OpenAI.BadRequestError, () => chat({ max_tokens: 1000000 }));
  assert.equal(e.code, "context_length_exceeded");
  e = await fails(OpenAI.BadRequestError, () => chat({ tools: [{ type: "function", function: { name: "f" } }] }));
  assert.equal(e.code, "unsupported_parameter");
  e = await fails(OpenAI.BadRequestError, () => chat({ unknown: 1 }));
  assert.equal(e.code, "unknown_parameter");
  e = await fails(OpenAI.NotFoundError, () => chat({ model: "gpt-4" }));
  assert.equal(e.code, "model_not_found");
  await fails(OpenAI.NotFoundError, () => client.files.list());
  const other = new OpenAI({ baseURL: url + "/v1", apiKey: "wrong", maxRetries: 0 });
  e = await fails(OpenAI.AuthenticationError, () => other.models.list());
  assert.equal(e.code, "invalid_api_key");
});

const tools = [
  {
    type: "function",
    function: {
      name: "get_weather",
      description: "The weather of a town",
      strict: true,
      parameters: {
        type: "object",
        properties: { town: { enum: ["Bergen", "Kiel"] }, days: { enum: [1, 2, 7] } },
        required: ["town", "days"],
        additionalProperties: false,
      },
    },
  },
  { type: "function", function: { name: "get_time", parameters: { type: "object", properties: {}, additionalProperties: false } } },
];
const forced = { model, messages: story, tools, tool_choice: { type: "function", function: { name: "get_weather" } }, max_tokens: 80, seed: 1 };

function weatherCheck(call) {
  assert.equal(call.type, "function");
  assert.equal(call.function.name, "get_weather");
  const values = JSON.parse(call.function.arguments);
  assert.ok(["Bergen", "Kiel"].includes(values.town) && Number.isInteger(values.days));
}

await check("tools: a function that must be called, and its result", async () => {
  const a = await client.chat.completions.create(forced);
  assert.equal(a.choices[0].finish_reason, "tool_calls");
  const message = a.choices[0].message;
  assert.equal(message.content, null);
  assert.equal(message.tool_calls.length, 1);
  weatherCheck(message.tool_calls[0]);
  const messages = [...story, message, { role: "tool", tool_call_id: message.tool_calls[0].id, content: "Rain." }];
  const plain = tools.slice(1);
  const b = await client.chat.completions.create({ model, messages, tools: plain, max_tokens: 8, seed: 1 });
  assert.ok(["stop", "length"].includes(b.choices[0].finish_reason));
  assert.ok(b.usage.prompt_tokens > a.usage.prompt_tokens / 2);
});

await check("tools: stream", async () => {
  const whole = await client.chat.completions.create({ ...forced, tool_choice: "required" });
  const stream = await client.chat.completions.create({ ...forced, tool_choice: "required", stream: true });
  const call = { name: "", arguments: "" };
  let end = null;
  for await (const chunk of stream) {
    const part = chunk.choices[0].delta.tool_calls?.[0];
    call.name += part?.function.name ?? "";
    call.arguments += part?.function.arguments ?? "";
    end = chunk.choices[0].finish_reason ?? end;
  }
  assert.equal(end, "tool_calls");
  assert.deepEqual(call, whole.choices[0].message.tool_calls[0].function);
});

await check("tools: the client's own parser", async () => {
  const a = await client.chat.completions.parse({ ...forced, tools: tools.slice(0, 1) });
  assert.ok(a.choices[0].message.tool_calls[0].function.parsed_arguments.days >= 1);
});

await check("tools: refused", async () => {
  const e = await fails(OpenAI.BadRequestError, () => client.chat.completions.create({ ...forced, tool_choice: "auto" }));
  assert.equal(e.code, "unsupported_parameter");
  assert.equal(e.param, "tools");
});

console.log(`openai: ${nChecks} checks, ${nFailed} failed`);
process.exit(nFailed > 0 ? 1 : 0);
