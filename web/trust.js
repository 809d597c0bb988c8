// What project files loosen and nobody has trusted yet, with a button for each that trusts it.

import { h, notify } from "./dom.js";
import { insist } from "./http.js";

// Whole, and with every character that is not plain escaped: none can turn or hide what follows it.
const plain = (value) =>
  JSON.stringify(value).replace(/[^\x20-\x7e]/g, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);

export function trustNotices(projects, changed) {
  const waiting = [...projects.values()].filter((project) => project.trust?.state === "pending");
  return waiting.map((project) => notice(project, changed));
}

function notice(project, changed) {
  const trust = () =>
    insist("POST", `/projects/${project.id}/trust`, { dsl_hash: project.trust.dsl_hash })
      .then(changed)
      .catch((problem) => notify(problem.message));
  const values = project.trust.details.map((one) => [
    h("dt", {}, one.key),
    h("dd", {}, "trusted: ", h("code", {}, plain(one.trusted)), h("br"), "wanted: ", h("code", {}, plain(one.wanted))),
  ]);
  return h(
    "section",
    { class: "panel trust", "data-project": project.id },
    h("h2", {}, `The project file of ${project.name} allows more than you trusted before`),
    h("p", { class: "quiet" }, `${project.path}: sessions run without it until you trust it.`),
    h("dl", {}, values.flat()),
    h("button", { type: "button", onclick: trust }, "Trust this file"),
  );
}
