// What may be done with a session now. The server says what is allowed; this page has no rules of its own.

import { h, notify } from "./dom.js";
import { get, insist } from "./http.js";

const ORDER = ["checkpoint", "resume", "cancel", "discard", "rollback", "fork", "compact", "archive", "reopen", "end", "purge"];
const LABELS = {
  checkpoint: "Pause",
  resume: "Resume",
  cancel: "Cancel run",
  discard: "Take back",
  rollback: "Roll back…",
  fork: "Fork",
  compact: "Compact",
  archive: "Archive",
  reopen: "Reopen",
  end: "End",
  purge: "Delete for good",
};
const ASK = {
  end: "End this session? What runs is stopped; what was said stays.",
  purge: "Delete this session for good? This cannot be undone.",
};
const path = (session) => `/sessions/${session.id}`;

const DO = {
  checkpoint: (session) => insist("POST", `${path(session)}/checkpoints`, { reason: "paused in the browser" }),
  resume: (session) =>
    session.state === "paused"
      ? insist("POST", `${path(session)}/checkpoints/${session.current_checkpoint}/resume`, {})
      : insist("POST", `${path(session)}/resume`),
  cancel: (session) => insist("POST", `${path(session)}/runs/${session.active_run}/cancel`),
  discard: (session) => insist("DELETE", `${path(session)}/queued-message`),
  compact: (session) => insist("POST", `${path(session)}/compact`, {}),
  archive: (session) => insist("POST", `${path(session)}/${session.archived ? "unarchive" : "archive"}`),
  reopen: (session) => insist("POST", `${path(session)}/reopen`),
  end: (session) => insist("DELETE", `${path(session)}?confirm=true`),
};

// Buttons for everything allowed; `done` is called after each, `panel` shows what needs a choice.
export function actions(session, { done, panel }) {
  const act = async (name, button) => {
    if (ASK[name] && !confirm(ASK[name])) return;
    button.disabled = true;
    try {
      await perform(name, session, panel);
    } catch (problem) {
      notify(problem.message);
    }
    button.disabled = false;
    done();
  };
  return ORDER.filter((name) => session.allowed_actions.includes(name)).map((name) => {
    const label = name === "archive" && session.archived ? "Unarchive" : LABELS[name];
    return h("button", { type: "button", class: `act ${name}`, onclick: (event) => act(name, event.currentTarget) }, label);
  });
}

async function perform(name, session, panel) {
  if (name === "rollback") return panel(await rollback(session, panel));
  if (name === "fork") {
    const made = await insist("POST", `/projects/${session.project_id}/sessions`, { resume_from: session.id });
    location.hash = `#/sessions/${made.id}`;
    return null;
  }
  if (name === "purge") {
    await insist("POST", `${path(session)}/purge?confirm=true`);
    location.hash = "#/";
    return null;
  }
  return DO[name](session);
}

async function rollback(session, panel) {
  const { items } = await get(`${path(session)}/checkpoints`);
  const points = items.filter((point) => !point.rolled_back && !point.superseded_by);
  const files = h("input", { type: "checkbox" });
  const back = async (point) => {
    try {
      const answer = await insist("POST", `${path(session)}/checkpoints/${point.id}/rollback`, { restore_files: files.checked });
      notify(`Rolled back: ${answer.messages_superseded} messages no longer count.`);
      panel(null);
    } catch (problem) {
      notify(problem.message);
    }
  };
  const rows = points.map((point) =>
    h("li", {}, h("button", { type: "button", onclick: () => back(point) }, new Date(point.created_at).toLocaleString()), " ", point.reason || point.created_by),
  );
  return h(
    "section",
    { class: "panel" },
    h("h2", {}, "Back to which pause?"),
    rows.length ? h("ul", {}, rows) : h("p", {}, "This session was never paused, so there is no point to go back to."),
    h("label", {}, files, " bring the files back too"),
    h("button", { type: "button", onclick: () => panel(null) }, "Leave it"),
  );
}
