// api.js: class Client: the requests of the page to the server. Errors are of class ApiError.

const HEALTH_MS = 5000;     // time limit of /health
const PLAIN_TOKENS = 256;   // at most so many new tokens if the model has no chat template and the user sets no limit

export class ApiError extends Error {
  // error: OpenAI's error object, or null.
  constructor(status, error, retryS = 0) {
    super(error && typeof error.message === "string" ? error.message : "The server answered with status " + status + ".");
    const parts = [status ? "status " + status : "", error && error.code, error && error.param ? "parameter " + error.param : ""];
    Object.assign(this, {status, retryS, code: error ? error.code : null, detail: parts.filter(part => part).join(", ")});
  }
}

async function failure(response) {
  const body = await response.json().catch(() => null);
  return new ApiError(response.status, body && body.error, Number(response.headers.get("Retry-After")) || 0);
}

// Yields the objects of a stream of server-sent events up to [DONE].
async function* events(response) {
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "", isDone = false;
  while (true) {
    const {done, value} = await reader.read();
    const lines = (rest + decoder.decode(value, {stream: !done})).split("\n");
    rest = lines.pop();
    for (const line of lines.filter(line => line.startsWith("data:"))) {
      const data = line.slice(5).trim();
      if (data === "[DONE]") {
        isDone = true;
      } else {
        yield JSON.parse(data);
      }
    }
    if (done && !isDone) {
      throw new ApiError(0, {message: "The connection ended before the answer was complete."});
    }
    if (done) {
      return;
    }
  }
}

export class Client {
  constructor(key) {
    Object.assign(this, {key, hasTemplate: true, context: 0});
  }

  headers(more) {
    return this.key ? {...more, Authorization: "Bearer " + this.key} : more;
  }

  // Returns the object of /health.
  async health() {
    const response = await fetch("health", {headers: this.headers({}), signal: AbortSignal.timeout(HEALTH_MS)});
    const health = await response.json();
    this.context = health.context || 0;
    return health;
  }

  // Sends a chat as {messages, parameters} and yields {text, finish, usage}. A model without a chat template continues the text of
  // all messages instead.
  async* complete({messages, parameters}, signal) {
    if (this.hasTemplate) {
      try {
        yield* this.post("v1/chat/completions", {messages, ...parameters}, signal);
        return;
      } catch (error) {
        if (error.code !== "no_chat_template") {
          throw error;
        }
        this.hasTemplate = false;
      }
    }
    const limit = Math.max(16, Math.min(PLAIN_TOKENS, Math.floor(this.context / 2)));
    const prompt = messages.map(m => m.content).join("\n");
    yield* this.post("v1/completions", {prompt, max_tokens: limit, ...parameters}, signal);
  }

  async* post(path, body, signal) {
    let response;
    try {
      response = await fetch(path, {method: "POST", headers: this.headers({"Content-Type": "application/json"}), signal,
        body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}})});
    } catch (error) {
      throw signal.aborted ? error : new ApiError(0, {message: "The server does not answer."});
    }
    if (!response.ok) {
      throw await failure(response);
    }
    for await (const event of events(response)) {
      if (event.error) {
        throw new ApiError(0, event.error);
      }
      const choice = event.choices && event.choices[0];
      yield {text: choice ? choice.text ?? choice.delta?.content ?? "" : "", finish: choice ? choice.finish_reason : null, usage: event.usage};
    }
  }
}
