// Buttons that end things, and the count of what survived: every record before against after.
import { ask, json, newKey } from "./api.js";
import { by, make } from "./dom.js";

let tell = {};

// tell.back(): the service is there again.
export async function setUp(told) {
  tell = told;
  const { faults } = await json("/api/chaos");
  by("chaos").hidden = false;
  by("faults").replaceChildren(
    ...faults.map((fault) => make("button", { class: "button danger", type: "button", "data-fault": fault.name, text: fault.words, on: { click: () => cause(fault) } })),
  );
}

async function records() {
  const lines = (await (await ask("/api/export")).text()).split("\n");
  return new Set(lines.filter((line) => line.startsWith('{"seq"')));
}

async function cause(fault) {
  const line = make("li", { class: "under-way", text: `${fault.words} …` });
  by("landed").prepend(line);
  const key = newKey();
  try {
    const before = await records();
    await begin(fault, key);
    const proof = await landed(key);
    const after = await again(records);
    const lost = [...before].filter((one) => !after.has(one)).length;
    const kept = `${before.size} records were saved before, ${lost === 0 ? "all of them are here" : `${lost} of them are gone`}.`;
    line.textContent = `${proof.seen || `It did not land: ${proof.failed}`}. ${kept}`;
    line.className = lost || proof.failed ? "lost" : "";
    tell.back();
  } catch (error) {
    line.textContent = `${fault.words}: ${error.message}`;
    line.className = "lost";
  }
}

// No answer is an answer here: the fault may have ended the process that was to give it.
async function begin(fault, key) {
  try {
    await ask(`/api/chaos/${fault.name}/${key}`, { method: "POST" });
  } catch (error) {
    if (!error.passes) throw error;
  }
}

async function landed(key) {
  for (const until = Date.now() + 60000; Date.now() < until; ) {
    const found = (await again(() => json("/api/chaos"))).landed.find((one) => one.key === key);
    if (found) return found;
    await pause();
  }
  return { failed: "no proof of it was seen" };
}

// The same question until there is an answer, for as long as a restart may take.
async function again(work) {
  const until = Date.now() + 60000;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!error.passes || Date.now() > until) throw error;
      await pause();
    }
  }
}

const pause = () => new Promise((resolve) => setTimeout(resolve, 250));
