// The pause: why the session stands still, the prompts in effect, and a compaction that waits for a word.

import { h, notify } from "./dom.js";
import { get, insist } from "./http.js";

export async function pausePanel(session, done) {
  const path = `/sessions/${session.id}/checkpoints/${session.current_checkpoint}`;
  const point = await get(path);
  const tell = async (work, words) => {
    try {
      await work();
      if (words) notify(words);
    } catch (problem) {
      notify(problem.message);
    }
    done();
  };
  return h(
    "section",
    { class: "panel pause" },
    h("h2", {}, point.created_by === "model" ? "The agent asks" : "Paused"),
    h("p", {}, point.reason || "No reason was given."),
    point.compaction ? compaction(point.compaction, path, tell) : null,
    point.prompts_in_effect.map((prompt) => promptEditor(prompt, path, tell)),
  );
}

function compaction(pending, path, tell) {
  const summary = h("textarea", { rows: 8, value: pending.summary ?? "" });
  const answer = (word) => () =>
    tell(() => insist("POST", `${path}/resume`, word === "approve" ? { compaction: word, summary: summary.value } : { compaction: word }));
  return h(
    "div",
    {},
    h("h3", {}, "This summary would stand for older messages"),
    summary,
    h("button", { type: "button", onclick: answer("approve") }, "Approve"),
    h("button", { type: "button", onclick: answer("reject") }, "Reject"),
  );
}

function promptEditor(prompt, path, tell) {
  const target = prompt.target ?? prompt.agent_path;
  const address = `${path}/prompts/${encodeURIComponent(target)}`;
  const text = h("textarea", { rows: 8 });
  const save = h("button", { type: "button", onclick: () => tell(() => insist("PUT", address, { content: text.value }), "The prompt is in effect on resume.") }, "Save");
  const open = async (event) => {
    if (!event.currentTarget.open || text.value) return;
    text.value = (await get(address)).content ?? "";
  };
  return h("details", { ontoggle: open }, h("summary", {}, `Prompt of ${target}`), text, save);
}
