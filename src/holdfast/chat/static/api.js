// Requests to the service. Every failure is a Trouble that says whether trying again can help.

export class Trouble extends Error {
  constructor(words, { status = 0, wait = 0 } = {}) {
    super(words);
    this.status = status;
    this.waitS = wait;
  }

  // The service or its store is away; what was to be done can be tried again with the same key.
  get passes() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

export async function ask(path, { method = "GET", body, raw, signal } = {}) {
  const options = { method, signal, headers: {} };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  } else if (raw !== undefined) {
    options.body = raw;
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Trouble("The service does not answer.");
  }
  if (answer.ok) return answer;
  const wait = Number(answer.headers.get("Retry-After")) || 0;
  let words = `The service answered ${answer.status}.`;
  try {
    const told = await answer.json();
    words = told.message || told.why || words;
  } catch {
    // not from this service: the status has to do
  }
  throw new Trouble(words, { status: answer.status, wait });
}

export async function json(path, options) {
  const answer = await ask(path, options);
  try {
    return await answer.json();
  } catch {
    throw new Trouble("The connection was lost.");
  }
}

// The events of an answer, one after the other, until it ends.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch {
      throw new Trouble("The connection was lost.");
    }
    if (piece.done) return;
    rest += piece.value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const kind = /^event: (.*)$/m.exec(part);
      const data = /^data: (.*)$/m.exec(part);
      if (kind && data) yield { kind: kind[1], ...JSON.parse(data[1]) };
    }
  }
}

export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(18));
  return btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_");
}
