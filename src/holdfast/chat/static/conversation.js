// One conversation: opened, sent to, answered. What fails is kept and tried again with its key.
import { ask, events, json, newKey } from "./api.js";
import { by } from "./dom.js";
import * as outbox from "./outbox.js";
import * as view from "./view.js";

export const here = { id: "", first: 0 };
const sending = new Set();
let tell = {};

// tell.trouble(error), tell.well(), tell.changed(), tell.show(hit): what the rest of the page does.
export function setUp(told) {
  tell = told;
}

const path = (id) => `/api/conversations/${encodeURIComponent(id)}/messages`;

export async function open(id) {
  here.id = id;
  here.first = 0;
  view.clear();
  by("older").hidden = true;
  try {
    const page = await json(path(id));
    if (here.id !== id) return;
    view.before(() => render(page)); // what was sent meanwhile is newer, and may be in it or not
    tell.well();
  } catch (error) {
    tell.trouble(error);
  }
  for (const item of outbox.waiting()) {
    if (item.conversation !== id || view.find(item.key)) continue;
    const mine = view.user(item.text, item);
    if (!sending.has(item.key)) held(mine);
  }
  view.toEnd();
  flush();
}

function render(page) {
  const answered = new Set(page.messages.map((one) => one.answers).filter(Boolean));
  const looks = new Map();
  for (const one of page.messages) {
    if (one.role === "tool" && one.answers) looks.set(one.answers, parsed(one.content));
    if (one.role === "user") {
      const item = view.find(one.key) || view.user(String(one.content ?? ""), one);
      view.saved(item, page.durability);
      if (sending.has(one.key)) continue;
      if (one.key && !answered.has(one.key)) again(item, { conversation: here.id, text: one.content, key: one.key });
    } else if (one.role === "assistant" && one.content && !view.answer(one.answers)) {
      const item = view.assistant(one.content, one);
      view.looked(item, looks.get(one.answers) || [], "", tell.show);
    }
  }
  const cut = page.interrupted;
  if (cut && !view.answer(cut.answers)) view.interrupted(view.assistant(cut.content, cut));
  for (const one of page.damaged) view.damaged(one);
  here.first = page.messages[0]?.seq || 0;
  by("older").hidden = page.messages.length < 200;
}

function parsed(content) {
  try {
    const found = JSON.parse(content);
    return Array.isArray(found) ? found.map((one) => ({ text: one.text, at: one.said_at })) : [];
  } catch {
    return [];
  }
}

export async function older() {
  const id = here.id;
  const page = await json(`${path(id)}?before=${here.first}`);
  if (here.id !== id) return;
  for (const one of [...page.messages].reverse()) {
    if (one.role === "user") view.saved(view.user(String(one.content ?? ""), { ...one, first: true }), page.durability);
    else if (one.role === "assistant" && one.content) view.assistant(one.content, { first: true });
  }
  here.first = page.messages[0]?.seq || here.first;
  by("older").hidden = page.messages.length < 200;
}

// The very message, however far back it stands.
export async function reveal(seq) {
  const id = here.id;
  while (here.id === id && !view.flash(seq) && seq < here.first) {
    const before = here.first;
    await older();
    if (here.first === before) return; // it was forgotten
  }
}

export function send(text) {
  const item = { conversation: here.id, text, key: newKey(), at: Date.now() };
  outbox.put(item);
  view.user(text, item);
  view.toEnd();
  flush();
}

// Everything that waits, in the order in which it was typed; the next after the last is saved.
let flushing = false;
export async function flush() {
  if (flushing) return;
  flushing = true;
  try {
    for (let item = next(); item; item = next()) {
      sending.add(item.key);
      if (!(await deliver(item))) {
        outbox.waiting().forEach(hold); // those behind it have to wait as well
        break;
      }
    }
  } finally {
    flushing = false;
  }
}

const next = () => outbox.waiting().find((item) => !sending.has(item.key));

// Whether to go on with the next one: this one is saved or refused. Its answer goes on coming in.
async function deliver(item) {
  try {
    const body = { text: item.text, key: item.key, utc_offset_minutes: -new Date().getTimezoneOffset() };
    const answer = await ask(path(item.conversation), { method: "POST", body });
    tell.well();
    return await new Promise((resolve) => {
      listen(item, answer, () => resolve(true)).then(resolve);
    });
  } catch (error) {
    return failed(item, error);
  }
}

const shown = (item) => (here.id === item.conversation ? view.find(item.key) : null);

async function listen(item, answer, goOn) {
  let reply = null;
  const line = () => {
    if (!reply?.isConnected && here.id === item.conversation) {
      reply = view.answer(item.key) || view.assistant("", { answers: item.key });
    }
    return here.id === item.conversation ? reply : null;
  };
  let over = false;
  try {
    for await (const event of events(answer)) {
      if (event.kind === "saved") {
        const mine = shown(item) || (here.id === item.conversation ? view.user(item.text, item) : null);
        if (mine) {
          mine.dataset.seq = event.seq;
          view.saved(mine, event.durability);
        }
        goOn();
      } else if (event.kind === "looked" && line()) {
        view.looked(line(), event.hits, event.failed, tell.show);
      } else if (event.kind === "delta" && line()) {
        view.grow(line(), event.text);
      } else if (event.kind === "answered") {
        const text = event.messages.filter((one) => one.role === "assistant").at(-1)?.content || "";
        if (line()) view.fill(line(), text);
        over = true;
      } else if (event.kind === "gone") {
        reply?.remove();
        over = true;
      } else if (event.kind === "failed") {
        if (reply?.querySelector(".bubble").textContent) view.interrupted(reply);
        else reply?.remove();
        const mine = shown(item);
        if (mine) again(mine, item, event.message);
        over = true;
      }
    }
    if (!over) throw Object.assign(new Error("The connection was lost."), { passes: true });
    outbox.drop(item.key);
  } catch (error) {
    reply?.remove();
    return failed(item, error);
  }
  sending.delete(item.key);
  tell.changed();
  return true;
}

function failed(item, error) {
  const mine = shown(item);
  sending.delete(item.key);
  if (error.passes) {
    hold(item);
    tell.trouble(error);
    return false;
  }
  outbox.drop(item.key);
  if (mine) view.state(mine, "refused", `not saved: ${error.message}`);
  return true;
}

function hold(item) {
  const mine = shown(item);
  if (mine && !mine.dataset.durability) held(mine);
}

function held(mine) {
  view.state(mine, "held", "kept in this browser until it can be saved");
}

function again(mine, item, words = "no answer yet") {
  const durability = mine.dataset.durability;
  view.state(mine, durability ? "disk" : "held", durability ? `saved, but ${words}` : words, {
    text: "Ask again",
    click: () => {
      if (durability) view.saved(mine, durability);
      outbox.put({ conversation: item.conversation, text: item.text, key: item.key, at: Date.now() });
      flush();
    },
  });
}
