// view.js: draws the state of the page. All text is inserted with textContent, so nothing that a model or a server writes is HTML.

import {titleOf} from "./model.js";

export const get = id => document.getElementById(id);

function element(name, props = {}, ...children) {
  const {data, ...rest} = props, e = Object.assign(document.createElement(name), rest);
  Object.assign(e.dataset, data);
  e.append(...children);
  return e;
}

const count = (n, unit) => n.toLocaleString("en") + " " + unit;
const action = (name, text, id, label = text) => element("button", {type: "button", className: "small", textContent: text, ariaLabel: label, title: label, data: {action: name, id}});

function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) {
    n /= 1024;
  }
  return n.toFixed(i > 0 ? 1 : 0) + " " + units[i];
}

// ---- the list of conversations ----

// busy: the ids of conversations with a running answer.
export function drawList(chats, currentId, busy) {
  const focus = get("list").contains(document.activeElement) ? {...document.activeElement.dataset} : null;
  get("list").replaceChildren(...chats.map(chat => {
    const title = titleOf(chat), open = element("button", {type: "button", className: "open", textContent: title, title, data: {action: "open", id: chat.id}});
    const item = element("li", {className: busy.has(chat.id) ? "busy" : ""}, open, action("rename", "\u270e", chat.id, "Rename: " + title),
      action("remove", "\u00d7", chat.id, "Delete: " + title));
    if (chat.id === currentId) {
      open.setAttribute("aria-current", "true");
    }
    return item;
  }));
  get("list-empty").hidden = chats.length > 0;
  if (focus) {
    [...get("list").querySelectorAll("button")].find(b => b.dataset.id === focus.id && b.dataset.action === focus.action)?.focus();
  }
}

// ---- the messages ----

// Text between lines of ``` is code.
function drawText(box, text) {
  const parts = text.split(/^```.*\n?/m);
  box.replaceChildren(...parts.map((part, i) => element(i % 2 ? "pre" : "p", {textContent: i % 2 ? part : part.trim()})).filter((e, i) => i % 2 || e.textContent));
}

function errorBox(error) {
  return element("div", {className: "error"}, element("p", {textContent: error.message}), element("p", {className: "soft", textContent: error.detail || ""}));
}

// state: {isBusy, isLast, why}; why: what an answer without text waits for.
function fill(article, message, {isBusy, isLast, why}) {
  const body = element("div", {className: "body"}), foot = element("div", {className: "foot"}), isAnswer = message.role === "assistant";
  drawText(body, message.content);
  if (isBusy && message.content === "") {
    body.append(element("p", {className: "soft wait", textContent: why || "Waiting for the first token"}));
  }
  if (message.error) {
    body.append(errorBox(message.error));
  }
  if (!isBusy && message.content !== "") {
    foot.append(action("copy", "Copy", ""));
  }
  if (!isBusy && isAnswer && isLast) {
    foot.append(action("regenerate", message.error ? "Try again" : "Regenerate", ""));
  }
  if (message.note) {
    foot.append(element("span", {className: "soft", textContent: message.note}));
  }
  article.classList.toggle("running", isBusy);
  article.replaceChildren(element("h3", {className: isAnswer ? "" : "hidden", textContent: isAnswer ? "Berth" : "You"}), body, foot);
}

function isAtEnd() {
  const s = get("scroll");
  return s.scrollHeight - s.scrollTop - s.clientHeight < 60;
}

export function scrollToEnd() {
  get("scroll").scrollTop = get("scroll").scrollHeight;
}

function stateOf(chat, i, isBusy, why) {
  const isLast = i === chat.messages.length - 1;
  return {isLast, isBusy: isBusy && isLast && chat.messages[i].role === "assistant", why};
}

function drawState(chat, isBusy) {
  get("title").textContent = titleOf(chat);
  document.title = titleOf(chat) + " - Berth";
  get("send").hidden = isBusy;
  get("stop").hidden = !isBusy;
  get("log").ariaBusy = String(isBusy); // screen readers wait for the end of the answer
}

export function drawChat(chat, isBusy, why) {
  drawState(chat, isBusy);
  get("welcome").hidden = chat.messages.length > 0;
  get("log").replaceChildren(...chat.messages.map((message, i) => {
    const article = element("article", {className: message.role, data: {index: i}});
    fill(article, message, stateOf(chat, i, isBusy, why));
    return article;
  }));
}

// Draws only the last message. Follows the text unless the user has scrolled up.
export function drawLast(chat, isBusy, why) {
  const follow = isAtEnd(), i = chat.messages.length - 1;
  drawState(chat, isBusy);
  fill(get("log").lastElementChild, chat.messages[i], stateOf(chat, i, isBusy, why));
  if (follow) {
    scrollToEnd();
  }
}

export function drawNotice(text) {
  get("notice").textContent = text;
  get("notice").hidden = text === "";
}

// ---- the server ----

// health: the object of /health, or null; then failure says why there is none.
export function drawHealth(health, failure) {
  const {pool, queue, memory} = health || {}, share = n => pool && pool.tokens > 0 ? Math.min(100, n / pool.tokens * 100) : 0;
  get("state").textContent = health ? (health.status === "ok" ? "running" : "shutting down") : failure;
  get("state").className = health && health.status === "ok" ? "good" : "bad";
  get("give-key").hidden = !health || Boolean(pool);
  get("meter").hidden = get("figures").hidden = !pool;
  get("why").hidden = !(queue && queue.why_waiting);
  if (!pool) {
    get("brief").textContent = health && health.status === "ok" ? "" : get("state").textContent;
    return;
  }
  const requests = queue.running + " running, " + queue.waiting + " waiting";
  const rows = [["Requests", requests], ["Cache used", count(pool.used, "tokens"), "mark"], ["Promised", count(pool.promised_peak, "tokens"), "mark promised"],
    ["Cache", count(pool.tokens, "tokens")], ["Memory planned", bytes(Object.values(memory).reduce((a, b) => a + b, 0))]];
  get("model").textContent = health.model;
  get("used").style.width = share(pool.used) + "%"; // through CSSOM, which the Content-Security-Policy allows
  get("promised").style.width = share(pool.promised_peak) + "%";
  get("meter").ariaLabel = "Cache: " + pool.used + " used and " + pool.promised_peak + " promised of " + pool.tokens + " tokens";
  get("figures").replaceChildren(...rows.map(([name, value, className = ""]) => element("div", {}, element("dt", {textContent: name, className}), element("dd", {textContent: value}))));
  get("why").textContent = "The first in the queue waits: " + queue.why_waiting;
  get("brief").textContent = requests;
}
