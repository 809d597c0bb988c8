// The page: which view the address names, the search field, and the count of what runs.

import { h, notify } from "./dom.js";
import { openSocket, Problem } from "./http.js";
import { searchView } from "./search.js";
import { sessionView } from "./session.js";
import { sessionsView } from "./sessions.js";

const view = document.getElementById("view");
const find = document.getElementById("find");
const running = document.getElementById("running");
let current = null;
let opening = 0;

async function route() {
  const mine = (opening += 1);
  current?.close?.();
  current = null;
  view.setAttribute("aria-busy", "true");
  const [, name = "", first = "", second = ""] = location.hash.split("/").map(decoded);
  // A view that comes late draws nothing over the one that was asked for after it.
  const draw = (...children) => mine === opening && view.replaceChildren(...children);
  document.title = "Holdfast";
  try {
    const shown = await open(draw, name, first, second);
    if (mine === opening) current = shown;
    else shown?.close?.();
  } catch (problem) {
    if (mine === opening) view.replaceChildren(trouble(problem));
  }
  if (mine === opening) view.setAttribute("aria-busy", "false");
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // somebody wrote the address by hand
  }
}

function open(draw, name, first, second) {
  if (name === "sessions" && first) return sessionView(draw, first, second);
  if (name === "search" && first) {
    find.elements.q.value = first;
    return searchView(draw, first);
  }
  return sessionsView(draw);
}

function trouble(problem) {
  if (!(problem instanceof Problem)) throw problem;
  if (problem.status === 401) {
    return h("section", { class: "panel" }, h("h2", {}, "Sign in"), h("p", {}, "Run ", h("code", {}, "holdfast launch"), " on the machine that runs Holdfast and open the link it prints. A link works once; this browser then stays signed in for 30 days."));
  }
  return h("section", { class: "panel" }, h("p", {}, problem.message), h("button", { type: "button", onclick: route }, "Try again"));
}

// The counts come by a socket of their own; whenever they change, the list is looked at again.
function watchRunning(tries = 0) {
  const socket = openSocket("/system/socket");
  socket.onmessage = (event) => {
    tries = 0;
    const { type, payload } = JSON.parse(event.data);
    if (type === "sessions.running_count") running.textContent = payload.total ? `${payload.total} running` : "";
    current?.refresh?.();
  };
  socket.onclose = () => setTimeout(() => watchRunning(tries + 1), Math.min(30_000, 500 * 2 ** tries));
}

find.addEventListener("submit", (event) => {
  event.preventDefault();
  const query = find.elements.q.value.trim();
  location.hash = query ? `#/search/${encodeURIComponent(query)}` : "#/";
});
window.addEventListener("hashchange", route);
window.addEventListener("unhandledrejection", (event) => notify(event.reason?.message ?? "Something broke in this page."));
route();
watchRunning();
