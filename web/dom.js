// Builds elements. Text is only ever text: nothing in this page parses HTML, so nothing that a model
// or a tool says can become part of it.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  // One by one: a long text has more parts than a call may have arguments.
  for (const child of children.flat()) if (child !== null && child !== undefined && child !== false) element.append(child);
  return element;
}

export function ago(at) {
  const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
  if (seconds < 60) return "just now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(at).toLocaleDateString();
}

export function money(usage) {
  const cost = usage.actual_cost_usd ?? usage.estimated_cost_usd;
  return cost ? `$${cost < 1 ? cost.toFixed(4) : cost.toFixed(2)}` : "";
}

export function badge(state) {
  return h("span", { class: `badge ${state}` }, state);
}

let hiding;

export function notify(words) {
  const notice = document.getElementById("notice");
  notice.textContent = words;
  notice.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => (notice.hidden = true), 8000);
}
