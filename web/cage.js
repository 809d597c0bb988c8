// What holds the programs of a session: its kind and network at a glance, the rest when it is opened.

import { h } from "./dom.js";

const NETWORKS = { none: "no network", machine: "the machine's network", public: "public network" };

export function cageNote(cage) {
  const network = NETWORKS[cage.network] ?? `network: ${cage.network}`;
  const held = cage.kind === "none" ? "no cage" : cage.kind === "unknown" ? "cage unknown" : `cage: ${cage.kind}`;
  const limits = Object.entries(cage.limits).map(([name, value]) => `${name} ${value}`).join(", ");
  const lines = [
    limits && `Limits: ${limits}.`,
    cage.reduced.length > 0 && `Not held: ${cage.reduced.join("; ")}.`,
    cage.why && `Why: ${cage.why}.`,
  ].filter(Boolean);
  return h(
    "details",
    { class: "quiet cage", "data-cage": cage.kind },
    h("summary", {}, `${held} · ${network}`),
    ...lines.map((line) => h("p", {}, line)),
  );
}
