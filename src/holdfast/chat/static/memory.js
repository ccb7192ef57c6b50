// What is remembered: listed, searched, deleted, forgotten, exported and loaded.
import { json, newKey } from "./api.js";
import { by, make, sure, when } from "./dom.js";
import * as outbox from "./outbox.js";

let tell = {};

// tell.trouble(error), tell.changed(), tell.show(memory), tell.forgotten(), tell.title(conversation)
export function setUp(told) {
  tell = told;
  by("search").addEventListener("submit", (event) => {
    event.preventDefault();
    search();
  });
  let later = 0;
  by("query").addEventListener("input", () => {
    clearTimeout(later);
    later = setTimeout(search, 250);
  });
  by("forget").addEventListener("click", forgetAll);
  by("load").addEventListener("click", () => by("file").click());
  by("file").addEventListener("change", load);
}

export async function refresh() {
  if (by("query").value.trim()) return search();
  const page = await json("/api/memories");
  say("found", "");
  show(page.memories);
  by("count").hidden = !page.count;
  by("count").textContent = page.count > 99 ? "99+" : page.count;
  return undefined;
}

async function search() {
  const query = by("query").value.trim();
  try {
    if (!query) return await refresh();
    const page = await json("/api/memories/search", { method: "POST", body: { query } });
    if (by("query").value.trim() !== query) return undefined;
    const behind = page.behind ? `; ${page.behind} not looked at yet` : "";
    say("found", page.memories.length ? `The nearest in meaning first${behind}` : `Nothing that fits${behind}`);
    show(page.memories);
  } catch (error) {
    if (error.passes) tell.trouble(error);
    say("found", error.message);
  }
  return undefined;
}

function show(memories) {
  const rows = memories.map((one) => {
    const from = one.conversation
      ? [
          make("button", { class: "link", type: "button", text: `your message of ${when(one.at) || "an unknown time"}`, on: { click: () => tell.show(one) } }),
          make("span", { text: ` in “${tell.title(one.conversation)}”` }),
        ]
      : [make("span", { text: `${when(one.at)} · from a loaded file` })];
    const remove = make(
      "button",
      { class: "icon small", type: "button", "aria-label": `Delete: ${one.text}`, title: "Delete", on: { click: () => drop(one) } },
      cross(),
    );
    return make(
      "li",
      { "data-id": one.id },
      make("div", {}, make("p", { class: "said", text: one.text }), make("p", { class: "where" }, ...from)),
      remove,
    );
  });
  if (!rows.length && !by("query").value.trim()) {
    rows.push(make("li", { class: "nothing", text: "Nothing yet. What you tell me is kept here, with the message that it comes from." }));
  }
  by("memories").replaceChildren(...rows);
}

function cross() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", "M6 6l12 12M18 6L6 18");
  svg.append(line);
  return svg;
}

async function drop(one) {
  if (!(await sure(`Forget “${one.text}”? The conversation that it comes from stays.`, "Forget it"))) return;
  await carryOut(async () => {
    say("done", told(await json(`/api/memories/${encodeURIComponent(one.id)}`, { method: "DELETE" })));
  });
}

async function forgetAll() {
  if (!(await sure("Forget every conversation and every memory for good? Nothing brings them back.", "Forget everything"))) return;
  await carryOut(async () => {
    say("done", told(await json("/api/forget-all", { method: "POST" })));
    outbox.clear();
    tell.forgotten();
  });
}

export function told(erased) {
  const left = erased.quoted_in.map((id) => `“${tell.title(id)}”`).join(", ");
  const quoted = left && `It can still be read in ${left}: forget that too to erase it.`;
  const files = quoted || (erased.scrubbed ? "No copy is left in the engine's files." : "The engine's own files may still hold copies for a while.");
  return `Erased: ${many(erased.messages, "message")}, ${many(erased.memories, "memory", "memories")} in ${many(erased.conversations, "conversation")}, ${erased.bytes.toLocaleString()} bytes. ${files}`;
}

const many = (count, one, more = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : more}`;

async function load() {
  const [file] = by("file").files;
  by("file").value = "";
  if (!file) return;
  await carryOut(async () => {
    const added = await json(`/api/load/${newKey()}`, { method: "POST", raw: await file.text() });
    say("done", `Loaded: ${many(added.messages, "message")} in ${many(added.conversations, "conversation")}, ${many(added.memories, "memory", "memories")}.`);
  });
}

async function carryOut(work) {
  try {
    await work();
    tell.changed();
  } catch (error) {
    if (error.passes) tell.trouble(error);
    say("done", `Not done: ${error.message}`);
  }
}

export function say(id, words) {
  by(id).textContent = words;
  by(id).hidden = !words;
}
