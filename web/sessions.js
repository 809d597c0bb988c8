// The list of sessions, newest activity first, and the way to a new one.

import { ago, badge, h, money, notify } from "./dom.js";
import { get, insist } from "./http.js";
import { trustNotices } from "./trust.js";

const PAGE = 30;
const PAGE_MAX = 500;
const STATES = ["", "running", "paused", "queued", "idle", "ended", "failed"];

export async function sessionsView(draw) {
  const state = { filter: "", archived: false, cursor: null, projects: new Map() };
  const list = h("ul", { class: "cards" });
  const more = h("button", { type: "button", hidden: true, onclick: () => load(false) }, "Show more");
  const choice = h("select", { "aria-label": "State", onchange: (event) => refilter({ filter: event.currentTarget.value }) }, STATES.map((one) => h("option", { value: one }, one || "every state")));
  const archived = h("input", { type: "checkbox", onchange: (event) => refilter({ archived: event.currentTarget.checked }) });

  const refilter = (change) => {
    Object.assign(state, change);
    list.replaceChildren();
    return load(true);
  };

  // One after the other, so that no older answer covers a newer one.
  let last = Promise.resolve();
  const load = (anew) => (last = last.catch(() => {}).then(() => read(anew)));

  // Looked at again, the list stays as long as it was made by «Show more».
  async function read(anew) {
    const limit = anew ? Math.min(PAGE_MAX, Math.max(PAGE, list.childElementCount)) : PAGE;
    const wanted = new URLSearchParams({ limit: String(limit), archived: String(state.archived) });
    if (state.filter) wanted.set("state", state.filter);
    if (!anew && state.cursor) wanted.set("cursor", state.cursor);
    const answer = await get(`/sessions?${wanted}`);
    const cards = answer.items.map((session) => card(session, state.projects));
    if (anew) list.replaceChildren(...cards);
    else list.append(...cards);
    if (anew && !cards.length) list.append(h("li", { class: "quiet" }, "No sessions here yet."));
    state.cursor = answer.next_cursor;
    more.hidden = !state.cursor;
  }

  const untrusted = h("div", {});
  const starting = h("div", {});
  async function readProjects() {
    for (const project of (await get("/projects?limit=500")).items) state.projects.set(project.id, project);
    untrusted.replaceChildren(...trustNotices(state.projects, readProjects));
    starting.replaceChildren(newSession(state.projects, readProjects));
  }

  await readProjects();
  draw(
    untrusted,
    h("section", { class: "top" }, starting, h("div", { class: "filters" }, choice, h("label", {}, archived, " archived"))),
    list,
    more,
  );
  await load(true);
  // One more look whenever a run starts or ends anywhere; app.js hears of it.
  return { refresh: () => load(true).catch((problem) => notify(problem.message)) };
}

function card(session, projects) {
  const title = session.title || session.preview || "Untitled";
  const project = projects.get(session.project_id)?.name ?? "";
  const about = [project, ago(session.last_active), `${session.message_count} messages`, money(session.usage)].filter(Boolean);
  return h(
    "li",
    {},
    h("a", { class: "card", href: `#/sessions/${session.id}` }, h("div", { class: "title" }, badge(session.state), " ", title), h("div", { class: "quiet" }, about.join(" · "))),
  );
}

function newSession(projects, loaded) {
  const ready = [...projects.values()].filter((project) => project.state === "ready");
  const which = h("select", { "aria-label": "Project" }, ready.map((project) => h("option", { value: project.id, title: project.path }, project.name)));
  const folder = h("input", { type: "text", placeholder: "/path/to/a/folder", "aria-label": "Folder of a project" });
  const start = async (projectId) => {
    const made = await insist("POST", `/projects/${projectId}/sessions`, { source: "web" });
    location.hash = `#/sessions/${made.id}`;
  };
  const failing = (work) => (event) => {
    event.preventDefault();
    work().catch((problem) => notify(problem.message));
  };
  // A file that loosens something is shown first, above; a session of it is one more click.
  const load = failing(async () => {
    const project = await insist("POST", "/projects/load", { path: folder.value.trim() });
    if (project.trust.state === "pending") await loaded();
    else await start(project.id);
  });
  return h(
    "div",
    { class: "new" },
    ready.length ? h("form", { onsubmit: failing(() => start(which.value)) }, which, h("button", { class: "primary" }, "New session")) : null,
    h("details", { open: !ready.length }, h("summary", {}, "Open a folder"), h("form", { onsubmit: load }, folder, h("button", {}, "Open"))),
  );
}
