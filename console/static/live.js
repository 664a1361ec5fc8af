// Live pages: the server sends the regions of the page that changed, and these are written over the
// old ones in place: focus, scrolled tables and opened details stay as the reader left them. A region
// in which text is selected waits until it no longer is. A hidden tab is not connected: browsers
// allow six connections to a host, and seven tabs would block each other.

import { showTimes, timeText } from "./times.js";

const SILENT_MS = 40_000; // The server says something at least every 15 s.
const RETRY_MS = 5_000;

let source = null;
let heardMs = 0;
let lostMs = 0;
let changedMs = 0;
let waiting = new Map();

/** Keep the page's regions up to date with the events at a URL. */
export function followEvents(url) {
  const look = () => {
    if (document.hidden) disconnect();
    else if (source === null) connect(url);
    else if (Date.now() - heardMs > SILENT_MS || source.readyState === EventSource.CLOSED) {
      lost();
      disconnect();
      connect(url);
    }
  };
  document.addEventListener("visibilitychange", look);
  document.addEventListener("selectionchange", writeWaiting);
  document.addEventListener("zonechange", sayWhen);
  setInterval(look, RETRY_MS);
  look();
}

function connect(url) {
  heardMs = Date.now();
  source = new EventSource(url);
  source.addEventListener("open", heard);
  source.addEventListener("beat", heard);
  source.addEventListener("message", (event) => {
    heard();
    changedMs = Date.now();
    const news = JSON.parse(event.data);
    showError(news.live_error);
    for (const [id, html] of Object.entries(news)) waiting.set(id, html);
    writeWaiting();
    sayWhen();
  });
  source.addEventListener("error", lost);
}

function disconnect() {
  if (source !== null) source.close();
  source = null;
}

// -- what the reader is told ------------------------------------------------------------------

function heard() {
  heardMs = Date.now();
  if (lostMs || !document.getElementById("live-state").textContent) say("Live.", false);
  lostMs = 0;
}

function lost() {
  if (lostMs) return;
  lostMs = Date.now();
  say(`Not connected since ${timeText(lostMs)}; these figures are older. Trying again.`, true);
}

/** Said once, for screen readers say it aloud. */
function say(text, isLost) {
  const place = document.getElementById("live-state");
  place.textContent = text;
  place.classList.toggle("lost", isLost);
}

function sayWhen() {
  if (changedMs) {
    document.getElementById("live-when").textContent = `Last change ${timeText(changedMs)}.`;
  }
}

function showError(text) {
  const place = document.getElementById("live_error");
  place.hidden = !text;
  place.textContent = text || "";
}

// -- writing a region -------------------------------------------------------------------------

function writeWaiting() {
  for (const [id, html] of waiting) {
    const region = document.getElementById(id);
    if (region === null || !region.hasAttribute("data-live")) waiting.delete(id);
    else if (!isSelectedIn(region)) {
      waiting.delete(id);
      write(region, html);
    }
  }
}

function isSelectedIn(region) {
  const selection = getSelection();
  return !selection.isCollapsed && selection.containsNode(region, true);
}

function write(region, html) {
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  showTimes(fresh.content);
  const focused = document.activeElement;
  mendChildren(region, fresh.content);
  if (focused !== document.activeElement && focused.isConnected) {
    focused.focus({ preventScroll: true });
  }
}

/** Make the children of `old` those of `fresh`, keeping every node that can stay. */
function mendChildren(old, fresh) {
  const rows = new Map(); // A row keeps its node although others come and go before it.
  for (const child of old.children) {
    const key = keyOf(child);
    if (key) rows.set(key, [...(rows.get(key) ?? []), child]);
  }
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    const found = key ? rows.get(key)?.shift() : isAlike(at, wanted) ? at : null;
    if (!found) old.insertBefore(wanted, at);
    else {
      if (found === at) at = at.nextSibling;
      else old.insertBefore(found, at);
      mend(found, wanted);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.row || "" : "";
}

function isAlike(old, wanted) {
  return old !== null && old.nodeType === wanted.nodeType && old.nodeName === wanted.nodeName && !keyOf(old);
}

function mend(old, wanted) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== wanted.data) old.data = wanted.data;
    return;
  }
  if (old.hasAttribute("data-keep")) return;
  for (const name of old.getAttributeNames()) {
    // Whether a <details> is open is the reader's.
    if (!wanted.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  mendChildren(old, wanted);
}
