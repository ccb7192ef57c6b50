// The messages on the page: each one's text is text, and its state is what the service has said.
import { by, level, make, when } from "./dom.js";

const list = by("messages");
const scroll = by("scroll");

const isNear = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 120;

// At once: while a smooth one is under way the end is not near, and nobody would follow it.
export function toEnd() {
  scroll.scrollTo({ top: scroll.scrollHeight, behavior: "instant" });
}

// A banner, or a longer draft, leaves less room.
new ResizeObserver(() => isNear() && toEnd()).observe(scroll);

// What is added at the end is seen by whoever reads there.
function following(work) {
  const near = isNear();
  work();
  if (near) toEnd();
}

export function clear() {
  list.replaceChildren();
  by("empty").hidden = false;
}

// What is there already stays the newest.
export function before(work) {
  const later = [...list.children];
  work();
  list.append(...later);
}

export function find(key) {
  return key && list.querySelector(`[data-key="${CSS.escape(key)}"]`);
}

export function answer(key) {
  return key && list.querySelector(`[data-answers="${CSS.escape(key)}"]`);
}

export function user(text, { key, seq, at, first = false }) {
  const item = bubble("user", text);
  if (key) item.dataset.key = key;
  if (seq) item.dataset.seq = seq;
  item.append(make("p", { class: "state", "data-state": "sending" }, make("span", { text: "sending" })));
  if (at) item.querySelector(".state").title = when(at);
  place(item, first);
  return item;
}

export function state(item, name, words, act) {
  const line = item.querySelector(".state");
  line.dataset.state = name;
  following(() => {
    line.replaceChildren(make("span", { text: words }));
    if (act) line.append(make("button", { class: "link", type: "button", text: act.text, on: { click: act.click } }));
  });
}

export function saved(item, durability) {
  item.dataset.durability = durability;
  state(item, durability === "MEMORY" || durability === "PROCESS" ? "saved" : "disk", level(durability));
}

export function assistant(text, { answers, first = false } = {}) {
  const item = bubble("assistant", text);
  if (answers) item.dataset.answers = answers;
  place(item, first);
  return item;
}

function bubble(role, text) {
  by("empty").hidden = true;
  const who = role === "user" ? "You said:" : "Holdfast said:";
  return make("li", { class: `message ${role}` }, make("span", { class: "hidden", text: who }), make("div", { class: "bubble", text }));
}

function place(item, first) {
  if (first) list.prepend(item);
  else following(() => list.append(item));
}

export function grow(item, text) {
  following(() => {
    begins(item);
    item.querySelector(".bubble").textContent += text;
  });
}

export function fill(item, text) {
  begins(item);
  item.querySelector(".bubble").textContent = text;
}

// It is all that was heard of an answer; it stays until the next one begins.
export function interrupted(item) {
  item.querySelector(".state")?.remove();
  following(() => item.append(make("p", { class: "state", "data-state": "held" }, make("span", { text: "interrupted" }))));
}

function begins(item) {
  if (!item.querySelector(".state")) return;
  item.querySelector(".state").remove();
  item.querySelector(".bubble").textContent = "";
}

// What an answer was made from, folded below it.
export function looked(item, hits, failed, show) {
  item.querySelector(".looked")?.remove();
  if (!hits.length && !failed) return;
  const words = failed ? "memory could not be searched" : `looked at ${hits.length} ${hits.length === 1 ? "memory" : "memories"}`;
  const rows = hits.map((hit) =>
    make(
      "li",
      {},
      make("span", { text: hit.text }),
      hit.conversation
        ? make("button", { class: "link", type: "button", text: when(hit.at), on: { click: () => show(hit) } })
        : make("span", { class: "faint", text: when(hit.at) }),
    ),
  );
  item.append(make("details", { class: "looked" }, make("summary", { text: words }), make("ul", {}, ...rows)));
}

// Whether it is on the page.
export function flash(seq) {
  const item = list.querySelector(`[data-seq="${Number(seq)}"]`);
  if (!item) return false;
  item.scrollIntoView({ block: "center" });
  item.classList.remove("flash");
  void item.offsetWidth;
  item.classList.add("flash");
  return true;
}

export function damaged(one) {
  const item = bubble("damaged", `Message ${one.seq} cannot be read: ${one.reason}`);
  place(item, false);
}
