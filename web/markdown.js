// Markdown as elements: code, headings, lists, quotes, paragraphs, emphasis, links to http(s). What is
// not understood stays as it was written.

import { h } from "./dom.js";

// Every part of it looks ahead only to the next mark of its own kind, so no text takes long.
const INLINE = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\[([^[\]\n]+)\]\((https?:\/\/[^\s()]+)\)|(https?:\/\/[^\s<>"'()[\]]+)/;

export function markdown(text) {
  const lines = text.split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const [block, next] = readBlock(lines, at);
    if (block) blocks.push(block);
    at = next;
  }
  return blocks;
}

function readBlock(lines, at) {
  const line = lines[at];
  if (!line.trim()) return [null, at + 1];
  const fence = line.match(/^\s*(```+|~~~+)/);
  if (fence) return readFence(lines, at, fence[1]);
  const heading = line.match(/^(#{1,6})\s+(.*)$/);
  if (heading) return [h(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2])), at + 1];
  if (isItem(line)) return readList(lines, at);
  if (line.startsWith(">")) return readQuote(lines, at);
  return readParagraph(lines, at);
}

function readFence(lines, at, fence) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence)) end += 1;
  return [h("pre", {}, h("code", {}, lines.slice(at + 1, end).join("\n"))), end + 1];
}

function readList(lines, at) {
  const ordered = /^\s*\d+[.)]\s/.test(lines[at]);
  const items = [];
  let end = at;
  while (end < lines.length && isItem(lines[end])) {
    items.push(h("li", {}, inline(lines[end].replace(/^\s*([-*+]|\d+[.)])\s+/, ""))));
    end += 1;
  }
  const start = ordered ? parseInt(lines[at], 10) : null;
  return [h(ordered ? "ol" : "ul", { start: start === 1 ? null : start }, items), end];
}

function readQuote(lines, at) {
  let end = at;
  while (end < lines.length && lines[end].startsWith(">")) end += 1;
  const inner = lines.slice(at, end).map((line) => line.replace(/^> ?/, ""));
  return [h("blockquote", {}, h("p", {}, inline(inner.join("\n")))), end];
}

function readParagraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines[end])) end += 1;
  return [h("p", {}, inline(lines.slice(at, end).join("\n"))), end];
}

const isItem = (line) => /^\s*([-*+]|\d+[.)])\s+\S/.test(line);
const startsBlock = (line) => isItem(line) || /^\s*(```|~~~)|^#{1,6}\s|^>/.test(line);

function inline(text) {
  const parts = [];
  let rest = text;
  for (let found = rest.match(INLINE); found; found = rest.match(INLINE)) {
    parts.push(rest.slice(0, found.index), piece(found));
    rest = rest.slice(found.index + found[0].length);
  }
  return [...parts, rest];
}

function piece([whole, code, strong, words, address, bare]) {
  if (code) return h("code", {}, code);
  if (strong) return h("strong", {}, strong);
  const to = address ?? bare;
  return to ? h("a", { href: to, rel: "noreferrer noopener", target: "_blank" }, words ?? to) : whole;
}
