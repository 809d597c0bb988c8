// Writing a message. What is being written, and what was sent and not yet taken, survives a reload.

import { h, notify } from "./dom.js";
import { insist, newKey } from "./http.js";

export class Composer {
  constructor(sessionId, taken) {
    this.sessionId = sessionId;
    this.taken = taken;
    this.text = h("textarea", { name: "message", rows: 2, maxlength: 1_000_000, "aria-label": "Message", oninput: () => this.keep("draft", this.text.value), onkeydown: (event) => this.typed(event) });
    this.button = h("button", { class: "primary" }, "Send");
    this.state = h("span", { class: "quiet", "aria-live": "polite" });
    this.element = h("form", { class: "composer", onsubmit: (event) => this.submit(event) }, this.text, h("div", {}, this.button, " ", this.state));
    this.text.value = this.kept("draft") ?? "";
    this.outbox = this.kept("outbox");
    this.goOn();
  }

  show(session) {
    this.allowed = session.allowed_actions.includes("message");
    this.text.placeholder = this.allowed ? "What should be done?" : `The session is ${session.state}.`;
    this.update();
  }

  update() {
    this.button.disabled = !this.allowed || Boolean(this.sending);
  }

  typed(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.submit(event);
  }

  submit(event) {
    event.preventDefault();
    const content = this.text.value.trim();
    if (!content || this.button.disabled) return;
    this.outbox = JSON.stringify({ key: newKey(), content });
    this.keep("outbox", this.outbox);
    this.text.value = "";
    this.keep("draft", "");
    this.goOn();
  }

  // Sends what waits, with the key it was given when it was written.
  async goOn() {
    if (!this.outbox || this.sending) return;
    const { key, content } = JSON.parse(this.outbox);
    this.sending = true;
    this.update();
    this.state.textContent = "Sending…";
    try {
      const answer = await insist("POST", `/sessions/${this.sessionId}/messages`, { content }, { key, whileWaiting: () => (this.state.textContent = "No connection; it is sent as soon as there is one.") });
      this.taken(answer);
    } catch (problem) {
      notify(problem.message);
      this.text.value = [content, this.text.value].filter(Boolean).join("\n\n");
      this.keep("draft", this.text.value);
    }
    // Another tab may have one of its own by now.
    if (this.kept("outbox") === this.outbox) this.keep("outbox", "");
    this.outbox = null;
    this.sending = false;
    this.state.textContent = "";
    this.update();
  }

  kept(what) {
    return localStorage.getItem(`${what}:${this.sessionId}`);
  }

  keep(what, value) {
    const name = `${what}:${this.sessionId}`;
    try {
      if (value) localStorage.setItem(name, value);
      else localStorage.removeItem(name);
    } catch {
      // The browser's store is full: it is sent all the same, only a reload would lose it.
    }
  }
}
