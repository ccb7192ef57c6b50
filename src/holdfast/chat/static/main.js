// Puts the page together: conversations, memory, theme, and what to say while the store is away.
import { json, newKey } from "./api.js";
import * as chaos from "./chaos.js";
import * as conversation from "./conversation.js";
import { by, level, make, sure, when } from "./dom.js";
import * as memory from "./memory.js";
import * as outbox from "./outbox.js";

const titles = new Map();
const ENGINES = { sqlite: "SQLite", redis: "Redis", valkey: "Valkey", postgres: "PostgreSQL", postgresql: "PostgreSQL" };

// --- Is the store there? ------------------------------------------------------------------

let away = "";
let setup = null;

function well() {
  if (away) {
    away = "";
    by("banner").hidden = true;
    changed();
  }
  pill();
}

function pill() {
  const mark = by("pill");
  mark.dataset.state = away ? "down" : setup ? "up" : "wait";
  if (away) mark.textContent = away;
  else if (setup) mark.textContent = setup.durability === "PROCESS" || setup.durability === "MEMORY" ? "saves to memory" : "saves to disk";
}

function trouble(error) {
  if (error.status === 401 && !sessionStorage.getItem("holdfast.asked")) {
    sessionStorage.setItem("holdfast.asked", "once"); // a browser without cookies would ask for ever
    location.reload();
    return;
  }
  const words = error.status ? `The store is away: ${error.message}` : error.message;
  by("banner").textContent = `${words} What you type is kept in this browser and sent when it is back.`;
  by("banner").hidden = false;
  const first = !away;
  away = error.status ? "store is away" : "service is away";
  pill();
  if (first) wait(400);
}

// Ask until a write is acknowledged again, less often the longer it takes.
function wait(ms) {
  setTimeout(async () => {
    try {
      await json("/readyz");
      if (!by("messages").children.length || !setup) await conversation.open(conversation.here.id);
      well();
      await conversation.flush();
      if (away) wait(1000);
    } catch {
      wait(Math.min(ms * 1.5, 4000));
    }
  }, ms);
}

// --- Conversations -------------------------------------------------------------------------

async function changed() {
  try {
    const [found, status] = await Promise.all([json("/api/conversations"), json("/api/status")]);
    if (status.chaos && !setup) chaos.setUp({ back: () => conversation.open(conversation.here.id).then(changed) });
    setup = status;
    sessionStorage.removeItem("holdfast.asked");
    list(found);
    facts(status);
    pill();
    await memory.refresh();
  } catch (error) {
    trouble(error);
  }
}

function list(found) {
  titles.clear();
  for (const one of found) titles.set(one.id, one.title || "conversation");
  by("conversations").replaceChildren(
    ...found.map((one) =>
      make(
        "li",
        { class: one.id === conversation.here.id ? "current" : "" },
        make(
          "a",
          { href: `#${one.id}`, "aria-current": one.id === conversation.here.id ? "page" : null },
          make("span", { class: "name", text: one.title || "conversation" }),
          make("span", { class: "faint", text: when(one.at) }),
        ),
        make("button", { class: "icon small", type: "button", "aria-label": `Forget conversation: ${one.title}`, title: "Forget", text: "×", on: { click: () => forget(one) } }),
      ),
    ),
  );
  by("title").textContent = titles.get(conversation.here.id) || "New conversation";
}

async function forget(one) {
  if (!(await sure(`Forget the conversation “${one.title}” and what is remembered from it, for good?`, "Forget it"))) return;
  try {
    const erased = await json(`/api/conversations/${encodeURIComponent(one.id)}`, { method: "DELETE" });
    outbox.forget(one.id);
    memory.say("done", memory.told(erased));
    if (one.id === conversation.here.id) start();
    else changed();
  } catch (error) {
    if (error.passes) trouble(error);
    memory.say("done", `Not done: ${error.message}`);
  }
}

function facts(status) {
  const lag = status.index_lag;
  const index = lag === null ? "cannot be read" : lag ? `${lag} records behind` : "up to date";
  const rows = [
    ["Store", ENGINES[status.engine] || status.engine],
    ["Messages are", level(status.durability)],
    ["Index", index],
    ["Answers by", status.answers_by],
    ...status.risks.map((risk) => ["Risk", risk]),
  ];
  by("setup").replaceChildren(
    ...rows.map(([name, value]) => make("div", { class: name === "Risk" ? "risk" : "" }, make("dt", { text: name }), make("dd", { text: value }))),
  );
}

// At once, not with the event of the address: what is typed next belongs to the new one.
function start() {
  history.pushState(null, "", `#${newKey().slice(0, 16)}`);
  opened();
}

function opened() {
  const id = location.hash.slice(1);
  if (!/^[A-Za-z0-9_-]{8,64}$/.test(id)) {
    start();
    return;
  }
  drawer(null);
  localStorage.setItem("holdfast.last", id);
  by("text").value = outbox.draft(id);
  by("title").textContent = titles.get(id) || "New conversation";
  const target = wanted;
  wanted = 0;
  conversation.open(id).then(() => {
    changed();
    if (target) conversation.reveal(target).catch(trouble);
  });
  if (matchMedia("(min-width: 720px)").matches) by("text").focus();
}

let wanted = 0;
function show(one) {
  drawer(null);
  if (one.conversation === conversation.here.id) {
    conversation.reveal(one.seq).catch(trouble);
    return;
  }
  wanted = one.seq;
  location.hash = one.conversation;
}

// --- Writing -------------------------------------------------------------------------------

function grow() {
  const box = by("text");
  box.style.height = "auto";
  box.style.height = `${Math.min(box.scrollHeight, 200)}px`;
}

function submit() {
  const text = by("text").value.trim();
  if (!text) return;
  conversation.send(text);
  by("text").value = "";
  outbox.keepDraft(conversation.here.id, "");
  grow();
}

by("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  submit();
});
by("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    submit();
  }
});
by("text").addEventListener("input", () => {
  outbox.keepDraft(conversation.here.id, by("text").value);
  grow();
});
for (const one of document.querySelectorAll(".try")) {
  one.addEventListener("click", () => {
    by("text").value = one.textContent;
    by("text").focus();
    submit();
  });
}
by("new").addEventListener("click", start);
by("older").addEventListener("click", () => conversation.older().catch(trouble));

// --- Drawers and theme ---------------------------------------------------------------------

function drawer(which) {
  for (const name of ["side", "memory"]) {
    by(name).classList.toggle("open", name === which);
    by(`open-${name}`).setAttribute("aria-expanded", String(name === which));
  }
  by("shade").hidden = which === null;
  if (which) by(which).querySelector("button, input")?.focus();
}

for (const name of ["side", "memory"]) {
  by(`open-${name}`).addEventListener("click", () => drawer(by(name).classList.contains("open") ? null : name));
}
by("close-memory").addEventListener("click", () => {
  drawer(null);
  by("open-memory").focus();
});
by("shade").addEventListener("click", () => drawer(null));
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !by("shade").hidden) drawer(null);
});

const THEMES = ["automatic", "light", "dark"];
function theme(name) {
  if (name === "automatic") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = name;
  by("theme").textContent = `Theme: ${name}`;
  localStorage.setItem("holdfast.theme", name);
}
by("theme").addEventListener("click", () => {
  const now = localStorage.getItem("holdfast.theme") || "automatic";
  theme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});
theme(THEMES.includes(localStorage.getItem("holdfast.theme")) ? localStorage.getItem("holdfast.theme") : "automatic");

// --- Begin ---------------------------------------------------------------------------------

conversation.setUp({ trouble, well, changed, show });
memory.setUp({ trouble, changed, show, forgotten: start, title: (id) => titles.get(id) || "a conversation that is gone" });
addEventListener("hashchange", opened);
if (location.hash.length > 1) opened();
else location.hash = localStorage.getItem("holdfast.last") || newKey().slice(0, 16);
