// Talks to the API. A command keeps one Idempotency-Key however often it must be sent, so a lost
// answer never makes it happen twice.

const PREFIX = "/api/v1";
const SIGNED_OUT = "This browser is not signed in any more: open a new link of `holdfast launch` in it.";
const PASSING = new Set([0, 429, 502, 503, 504]);
const RETRY_MS = [300, 600, 1200, 2500, 5000];

export class Problem extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  get passing() {
    return PASSING.has(this.status);
  }
}

export async function ask(method, path, body, key) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  let answer;
  try {
    answer = await fetch(PREFIX + path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
    });
  } catch {
    throw new Problem(0, "offline", "The server cannot be reached just now.");
  }
  const data = await answer.json().catch(() => null);
  if (answer.ok && data !== null) return data;
  if (answer.status === 401) throw new Problem(401, "unauthorized", SIGNED_OUT);
  const error = data?.error ?? { code: "unreadable", message: `HTTP ${answer.status}` };
  throw new Problem(answer.status, error.code, error.message);
}

// A socket of the API, as secure as the page is.
export function openSocket(path) {
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  return new WebSocket(`${scheme}//${location.host}${PREFIX}${path}`);
}

export const get = (path) => ask("GET", path);

// Sends until the server has said yes or no; `whileWaiting` hears of every try that got no answer.
export async function insist(method, path, body, { key = newKey(), whileWaiting = () => {} } = {}) {
  for (let tries = 0; ; tries += 1) {
    try {
      return await ask(method, path, body, method === "POST" ? key : undefined);
    } catch (problem) {
      if (!(problem instanceof Problem) || !problem.passing) throw problem;
      whileWaiting(problem);
      await pause(RETRY_MS[Math.min(tries, RETRY_MS.length - 1)]);
    }
  }
}

export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
