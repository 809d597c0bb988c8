// What was said and done, in order: messages, tool calls with their results, and words as they come.

import { ago, h } from "./dom.js";
import { markdown } from "./markdown.js";

const NAMES = { operator: "You", primary: "Agent", subagent: "Subagent", system: "System", tool: "Tool" };
const OUTPUT_CHARACTERS = 20_000;
// More of one message would keep the browser busy for seconds.
const MARKDOWN_CHARACTERS = 40_000;

export class Transcript {
  constructor() {
    this.element = h("ol", { class: "transcript", "aria-label": "Conversation" });
    this.clear();
  }

  // What is heard while messages are being read anew is newer than what is read.
  async reread(reading) {
    const mine = (this.rereading = []);
    const answer = await reading;
    if (mine !== this.rereading) return null; // another reading began later
    this.rereading = null;
    const live = this.live;
    this.clear();
    for (const message of [...answer.items, ...mine]) this.add(message);
    for (const [id, words] of live) if (!this.shown.has(id)) this.keep(id, words);
    return answer;
  }

  keep(id, words) {
    this.live.set(id, words);
    this.element.append(words.element);
  }

  clear() {
    this.shown = new Map(); // message id → element
    this.calls = new Map(); // run and the provider's call id → card
    this.cards = new Map(); // our tool call id → card
    this.waiting = new Map(); // message id → cards that no tool_call frame has named yet
    this.live = new Map(); // message id → words of a message that is not finished
    this.element.replaceChildren();
  }

  // Earlier messages come in front, later ones behind; one that is there already is shown anew.
  add(message) {
    this.rereading?.push(message);
    this.finish(message.id);
    if (message.role === "tool" && this.answer(message)) return;
    const element = this.draw(message);
    element.dataset.seq = message.seq;
    element.id = `m-${message.id}`;
    const old = this.shown.get(message.id);
    this.shown.set(message.id, element);
    if (old) old.replaceWith(element);
    else this.place(element, message.seq);
  }

  lastId() {
    const told = [...this.element.children].filter((one) => one.dataset.seq);
    return told.at(-1)?.id.slice("m-".length) ?? null;
  }

  // Mostly behind the one before it, else found from the end.
  place(element, seq) {
    const before = (one) => Number(one?.dataset.seq) < seq;
    const last = this.placed;
    const follows = last?.parentElement === this.element && before(last) && !before(last.nextElementSibling);
    let after = follows ? last : this.element.lastElementChild;
    while (after && !before(after)) after = after.previousElementSibling;
    if (after) after.after(element);
    else this.element.prepend(element);
    this.placed = element;
  }

  draw(message) {
    const subagent = message.agent_path !== "primary" ? message.agent_path.split(".").pop() : null;
    const who = subagent ? `${NAMES.subagent} ${subagent}` : (NAMES[message.role] ?? message.role);
    const about = h("div", { class: "about" }, h("b", {}, who), h("time", { title: new Date(message.created_at).toLocaleString() }, ago(message.created_at)));
    const body = h("div", { class: "text" }, message.role === "tool" ? h("pre", {}, cut(message.content)) : written(message.content));
    const cards = (message.metadata.tool_calls ?? []).map((call) => this.card(message, call));
    if (cards.length) this.waiting.set(message.id, [...cards]);
    return h("li", { class: `message ${message.role}` }, about, message.content ? body : null, cards.map((card) => card.element));
  }

  card(message, call) {
    const card = new Card(call.name, call.arguments ?? {});
    this.calls.set(`${message.run_id} ${call.id}`, card);
    return card;
  }

  answer(message) {
    const card = this.calls.get(`${message.run_id} ${message.metadata.tool_call_id}`);
    card?.close(message.content, Boolean(message.metadata.failed));
    return Boolean(card);
  }

  // Frames -----------------------------------------------------------------------------------------

  // Tool calls of a message are told in their order.
  called(call) {
    const card = this.waiting.get(call.message_id)?.shift();
    if (card) this.cards.set(call.id, card);
  }

  output(frame) {
    this.cards.get(frame.tool_call_id)?.append(frame.text);
  }

  // `begun` says whether this page saw the beginning of the message.
  delta({ message_id: id, text, agent_path: path }, begun) {
    if (this.shown.has(id)) return; // read already
    let words = this.live.get(id);
    if (!words) {
      const body = h("div", { class: "text" }, begun ? "" : "… ");
      const name = path === "primary" ? NAMES.primary : `${NAMES.subagent} ${path.split(".").pop()}`;
      const element = h("li", { class: "message primary live", "aria-busy": "true" }, h("div", { class: "about" }, h("b", {}, name)), body);
      // The agent says one thing at a time: words that it left are of an attempt that broke off.
      if (path === "primary") for (const [other, old] of this.live) if (old.path === path) this.finish(other);
      words = { element, body, path };
      this.keep(id, words);
    }
    words.body.append(text);
  }

  finish(id) {
    this.live.get(id)?.element.remove();
    this.live.delete(id);
  }

  finishAll() {
    for (const id of [...this.live.keys()]) this.finish(id);
  }
}

class Card {
  constructor(name, input) {
    this.state = h("span", { class: "quiet" }, "…");
    this.result = h("pre", { class: "output" });
    const words = typeof input.command === "string" ? input.command : (input.path ?? input.query ?? input.name ?? "");
    const summary = h("summary", {}, h("b", {}, name), " ", h("code", {}, String(words).split("\n")[0].slice(0, 200)), " ", this.state);
    const asked = Object.keys(input).length ? h("pre", {}, cut(JSON.stringify(input, null, 2))) : null;
    this.element = h("details", { class: "call" }, summary, asked, this.result);
    this.closed = false;
  }

  append(text) {
    if (!this.closed) this.result.textContent = (this.result.textContent + text).slice(-OUTPUT_CHARACTERS);
  }

  close(content, failed) {
    this.closed = true;
    this.result.textContent = cut(readable(content));
    this.state.textContent = failed ? "failed" : "done";
    this.element.classList.toggle("failed", failed);
  }
}

// A tool's output as lines, what else it said behind it; anything but an object with an output stays as it is.
function readable(content) {
  let said;
  try {
    said = JSON.parse(content);
  } catch {
    return content;
  }
  if (typeof said?.output !== "string") return content;
  const { output, ...rest } = said;
  const facts = Object.entries(rest).map(([name, value]) => `${name}: ${JSON.stringify(value)}`);
  return `${output.trimEnd()}\n\n${facts.join(", ")}`.trim();
}

// A very long message begins as Markdown; all of it is shown as it was written, to who wants it.
function written(text) {
  if (text.length <= MARKDOWN_CHARACTERS) return markdown(text);
  const whole = (event) => event.currentTarget.parentElement.replaceChildren(h("pre", {}, text));
  const words = `Show all ${text.length} characters`;
  return [...markdown(text.slice(0, MARKDOWN_CHARACTERS)), h("button", { type: "button", onclick: whole }, words)];
}

function cut(text) {
  return text.length > OUTPUT_CHARACTERS ? `${text.slice(0, OUTPUT_CHARACTERS)}\n… ${text.length - OUTPUT_CHARACTERS} characters more` : text;
}
