// Elements from text. Nothing here or elsewhere makes HTML from a string.
export const by = (id) => document.getElementById(id);

export function make(tag, { text, ...facts } = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(facts)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [kind, act] of Object.entries(value)) made.addEventListener(kind, act);
    else made.setAttribute(name, value === true ? "" : value);
  }
  if (text !== undefined) made.textContent = text;
  made.append(...inside);
  return made;
}

export function when(iso) {
  if (!iso) return "";
  const at = new Date(iso);
  const now = new Date();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === now.toDateString()) return `today ${time}`;
  const days = (now - at) / 86400000;
  if (days < 6) return `${at.toLocaleDateString([], { weekday: "long" })} ${time}`;
  return at.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}

const LEVELS = {
  MEMORY: "saved",
  PROCESS: "saved, survives a crash",
  DISK: "saved on disk",
  REPLICA: "saved on disk and on a replica",
};

export const level = (durability) => LEVELS[durability] || "saved";

// Ask before something is gone for good.
export function sure(words, yes) {
  const dialog = by("ask");
  by("ask-words").textContent = words;
  by("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
