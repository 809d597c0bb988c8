// Search over everything that was said.

import { ago, badge, h } from "./dom.js";
import { get } from "./http.js";

export async function searchView(draw, query) {
  const wanted = new URLSearchParams({ q: query, limit: "30" });
  const answer = await get(`/search?${wanted}`);
  const about = answer.items.length ? `${answer.items.length} found${answer.next_cursor ? ", and more" : ""}` : "Nothing was found.";
  draw(h("p", { class: "quiet" }, about, answer.complete ? "" : " The index is still being built."), h("ul", { class: "cards" }, answer.items.map(hit)));
}

function hit(item) {
  const where = `#/sessions/${item.session_id}/${item.id}`;
  return h("li", {}, h("a", { class: "card", href: where }, h("div", {}, marked(item.snippet)), h("div", { class: "quiet" }, badge(item.role), " ", ago(item.timestamp))));
}

// `>>>match<<<` in bold.
function marked(snippet) {
  return snippet.split(">>>").flatMap((part, index) => {
    if (index === 0) return [part];
    const [match, ...rest] = part.split("<<<");
    return [h("mark", {}, match), rest.join("<<<")];
  });
}
