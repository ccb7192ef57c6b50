// What was typed and is not known to be saved and answered yet. It outlives the page.
const PREFIX = "holdfast.outbox.";
const DRAFT = "holdfast.draft.";

export function put(item) {
  localStorage.setItem(PREFIX + item.key, JSON.stringify(item));
}

export function drop(key) {
  localStorage.removeItem(PREFIX + key);
}

export function waiting() {
  const found = [];
  for (let at = 0; at < localStorage.length; at += 1) {
    const name = localStorage.key(at);
    if (!name.startsWith(PREFIX)) continue;
    try {
      found.push(JSON.parse(localStorage.getItem(name)));
    } catch {
      localStorage.removeItem(name);
    }
  }
  return found.sort((a, b) => a.at - b.at);
}

// Everything that was typed here, drafts too.
export function clear() {
  for (const name of Object.keys(localStorage)) {
    if (name.startsWith(PREFIX) || name.startsWith(DRAFT) || name === "holdfast.last") localStorage.removeItem(name);
  }
}

export function forget(conversation) {
  for (const item of waiting()) if (item.conversation === conversation) drop(item.key);
  keepDraft(conversation, "");
}

export const draft = (conversation) => localStorage.getItem(DRAFT + conversation) || "";

export function keepDraft(conversation, text) {
  if (text) localStorage.setItem(DRAFT + conversation, text);
  else localStorage.removeItem(DRAFT + conversation);
}
