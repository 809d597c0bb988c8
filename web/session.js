// One session: what was said, what happens now, and what may be done about it.

import { actions } from "./actions.js";
import { cageNote } from "./cage.js";
import { Composer } from "./composer.js";
import { badge, h, money, notify } from "./dom.js";
import { get, insist } from "./http.js";
import { Live } from "./live.js";
import { pausePanel } from "./pause.js";
import { Transcript } from "./transcript.js";

const PAGE = 60;
const PAGE_MAX = 500;
const BOTTOM_PIXELS = 120;
// After these, messages that were shown may no longer count.
const REREAD = new Set(["checkpoint.rolled_back", "compaction.finished", "compaction.undone", "session.crash_recovered", "session.cleared"]);
const CONNECTION = { live: "live", waiting: "reconnecting…", over: "" };

export async function sessionView(draw, id, messageId) {
  const session = await get(`/sessions/${encodeURIComponent(id)}`);
  const shown = new SessionView(draw, session.id);
  await shown.open(session, messageId);
  return shown;
}

class SessionView {
  constructor(draw, id) {
    this.id = id;
    this.transcript = new Transcript();
    this.head = h("div", { class: "head" });
    this.connection = h("span", { class: "quiet connection" });
    this.buttons = h("div", { class: "actions" });
    this.panel = h("div", {});
    this.older = h("button", { type: "button", hidden: true, onclick: () => this.readOlder().catch((problem) => notify(problem.message)) }, "Earlier messages");
    this.composer = new Composer(id, (answer) => this.taken(answer));
    this.live = new Live(id, { hear: (frame, about) => this.hear(frame, about), lost: () => this.reread().catch((problem) => notify(problem.message)), tell: (state) => this.tell(state) });
    const foot = h("footer", { class: "foot" }, this.buttons, this.composer.element);
    draw(this.head, this.panel, this.older, this.transcript.element, foot);
  }

  async open(session, messageId) {
    this.show(session);
    await this.reread();
    this.live.start();
    if (messageId) await this.seek(messageId);
    else this.scrollDown();
  }

  close() {
    this.closed = true;
    clearTimeout(this.looking);
    this.live.stop();
  }

  // Reading ------------------------------------------------------------------------------------------

  async reread() {
    const answer = await this.transcript.reread(get(`/sessions/${this.id}/messages?before=latest&limit=${PAGE}`));
    if (!answer) return;
    this.reach(answer.next_cursor);
    this.scrollDown();
  }

  async catchUp() {
    const last = this.transcript.lastId();
    if (!last) return this.reread();
    for (let since = last; since; ) {
      const answer = await get(`/sessions/${this.id}/messages?since=${since}&limit=${PAGE_MAX}`);
      for (const message of answer.items) this.transcript.add(message);
      since = answer.next_cursor;
    }
    return null;
  }

  async readOlder(limit = PAGE) {
    const height = document.documentElement.scrollHeight;
    const answer = await get(`/sessions/${this.id}/messages?before=${this.cursor}&limit=${limit}`);
    for (const message of answer.items) this.transcript.add(message);
    this.reach(answer.next_cursor);
    window.scrollBy(0, document.documentElement.scrollHeight - height);
  }

  reach(cursor) {
    this.cursor = cursor;
    this.older.hidden = !cursor;
  }

  async seek(messageId) {
    let found;
    while (!(found = document.getElementById(`m-${messageId}`)) && this.cursor) await this.readOlder(PAGE_MAX);
    found?.scrollIntoView({ block: "center" });
    found?.classList.add("found");
  }

  // Showing ------------------------------------------------------------------------------------------

  show(session) {
    if (this.closed) return;
    const before = this.session;
    this.session = session;
    const title = h("button", { type: "button", class: "title", title: "Rename", onclick: () => this.rename() }, session.title || session.preview || "Untitled");
    const usage = [`${session.usage.input_tokens + session.usage.output_tokens} tokens`, money(session.usage)].filter(Boolean).join(" · ");
    // Made anew only when it says something else: who opened it keeps it open.
    if (JSON.stringify(before?.cage) !== JSON.stringify(session.cage)) this.cage = cageNote(session.cage);
    this.head.replaceChildren(badge(session.state), title, h("span", { class: "quiet" }, usage), this.connection, this.cage);
    this.head.dataset.state = session.state;
    document.title = `${session.state === "paused" ? "⏸ " : ""}${session.title || "Session"} · Holdfast`;
    const focused = this.buttons.contains(document.activeElement) ? document.activeElement.className : null;
    this.buttons.replaceChildren(...actions(session, { done: () => this.refresh(), panel: (content) => (content ? this.panel.replaceChildren(content) : this.showPause(this.pausedAt(this.session))) }));
    // Who goes through the buttons with the keyboard stays where they are.
    [...this.buttons.children].find((button) => button.className === focused)?.focus();
    this.composer.show(session);
    if (session.failure) notify(session.failure.message ?? "The session failed.");
    const point = this.pausedAt(session);
    if (point !== this.pausedAt(before)) this.showPause(point);
    if (before?.state === "ended" && session.state !== "ended") this.live.revive();
  }

  pausedAt(session) {
    return session?.state === "paused" ? session.current_checkpoint : null;
  }

  async showPause(point) {
    this.panel.replaceChildren();
    if (!point) return;
    try {
      this.panel.replaceChildren(await pausePanel(this.session, () => this.refresh()));
    } catch (problem) {
      notify(problem.message);
    }
  }

  // Several changes at once are one look.
  refresh() {
    clearTimeout(this.looking);
    this.looking = setTimeout(async () => {
      try {
        this.show(await get(`/sessions/${this.id}`));
      } catch (problem) {
        if (!problem.passing) notify(problem.message);
      }
    }, 60);
  }

  async rename() {
    const title = prompt("Title", this.session.title ?? "");
    if (title === null) return;
    try {
      this.show(await insist("PUT", `/sessions/${this.id}`, { title: title.trim() || null }));
    } catch (problem) {
      notify(problem.message);
    }
  }

  taken({ message, session }) {
    this.transcript.add(message);
    this.show(session);
    this.scrollDown();
    this.refresh();
  }

  tell(state) {
    this.connection.textContent = CONNECTION[state];
    this.connection.dataset.connection = state;
    if (state === "over") this.refresh();
  }

  // Hearing ------------------------------------------------------------------------------------------

  hear(frame, { first }) {
    const atBottom = window.innerHeight + window.scrollY > document.documentElement.scrollHeight - BOTTOM_PIXELS;
    const payload = frame.payload;
    if (frame.type === "welcome") this.welcomed(first);
    else if (frame.channel === "events") this.happened(frame.type);
    else if (frame.type === "delta") this.transcript.delta(payload, this.sawStart(payload.run_id));
    else if (frame.type === "message") this.transcript.add(payload.message);
    else if (frame.type === "tool_call") this.transcript.called(payload);
    else if (frame.type === "tool_output") this.transcript.output(payload);
    if (atBottom) this.scrollDown();
  }

  // Between reading the messages and the first welcome something may have been said.
  welcomed(first) {
    if (first) {
      this.joined = this.session.active_run;
      this.catchUp().catch((problem) => notify(problem.message));
    }
    this.refresh();
  }

  happened(kind) {
    if (REREAD.has(kind)) this.reread().catch((problem) => notify(problem.message));
    if (kind === "run.completed" || kind === "run.cancelled") this.transcript.finishAll();
    if (kind !== "message.added" && kind !== "call.put") this.refresh();
  }

  // Words of a run that was under way when this page joined may lack their beginning.
  sawStart(runId) {
    return runId !== this.joined;
  }

  scrollDown() {
    window.scrollTo(0, document.documentElement.scrollHeight);
  }
}
