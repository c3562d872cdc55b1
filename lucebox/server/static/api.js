// The server's API, by addresses relative to this page, so that it works wherever it is mounted.

const KEY = "lucebox.key";

/** An answer that is no success: OpenAI's code and param, the HTTP status (0: the server was not reached). */
export class ApiError extends Error {
  constructor(message, { status = 0, code = null, param = null, retryAfterS = null } = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.code = code;
    this.param = param;
    this.retryAfterS = retryAfterS;
  }
}

/** The key of this tab; "" for none. */
export function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function setApiKey(key) {
  sessionStorage.setItem(KEY, key);
}

async function request(path, options = {}) {
  const headers = { Accept: "application/json", ...options.headers };
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  const address = new URL(path, document.baseURI);
  try {
    return await fetch(address, { cache: "no-store", credentials: "same-origin", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached.");
  }
}

async function errorOf(response) {
  const retryAfter = Number.parseFloat(response.headers.get("retry-after") ?? "");
  const about = { status: response.status, retryAfterS: Number.isFinite(retryAfter) ? retryAfter : null };
  try {
    const { error } = await response.json();
    return new ApiError(error.message, { ...about, code: error.code, param: error.param });
  } catch {
    return new ApiError(`The server answered ${response.status} ${response.statusText}.`, about);
  }
}

/** The JSON at `path`. Throws ApiError. */
export async function get(path) {
  const response = await request(path);
  if (!response.ok) throw await errorOf(response);
  return response.json();
}

/** What /health says, whatever its status; null where nobody answers. */
export async function health() {
  try {
    const response = await request("health");
    return await response.json();
  } catch {
    return null;
  }
}

/** The chunks of a streamed chat completion. Throws ApiError, also for an error in mid-stream. */
export async function* chat(body, signal) {
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await errorOf(response);
  let isDone = false;
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") {
      isDone = true;
      continue;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, { status: 500, code: chunk.error.code, param: chunk.error.param });
    yield chunk;
  }
  if (!isDone) throw new ApiError("The connection to the server was lost.");
}

/** The data of each server-sent event in a stream of bytes. */
async function* eventData(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let held = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      held += decoder.decode(value, { stream: true });
      const blocks = held.split("\n\n");
      held = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n").filter((line) => line.startsWith("data:"));
        if (lines.length) yield lines.map((line) => line.slice(5).trimStart()).join("\n");
      }
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The connection to the server was lost.");
  } finally {
    reader.cancel().catch(() => {});
  }
}
