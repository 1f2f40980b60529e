// main.js: the events of the page: sends messages, receives answers, opens dialogs, polls the server.

import {Client} from "./api.js";
import {FIELDS, Store, messagesOf, parametersOf, titleOf} from "./model.js";
import {drawChat, drawHealth, drawLast, drawList, drawNotice, get, scrollToEnd} from "./view.js";

const POLL_MS = 2000;
const KEY = "berth.key", OPEN = "berth.open"; // in sessionStorage: the API key and the open conversation of this tab

function storageOf(name) {
  try {
    return window[name];
  } catch {
    return null; // the browser forbids it
  }
}

const session = storageOf("sessionStorage");
const store = new Store(storageOf("localStorage"));
const client = new Client(session?.getItem(KEY) || "");
const runs = new Map(); // from the id of a conversation to the AbortController of its running answer
let current = store.chats.get(session?.getItem(OPEN)) || store.create();
let why = ""; // what the first request of the server's queue waits for
let isDrawn = true; // false: a frame that draws the running answer is requested

// ---- drawing ----

const isBusy = chat => runs.has(chat.id);

function drawLists() {
  drawList(store.list(), current.id, runs);
}

function draw() {
  drawLists();
  drawChat(current, isBusy(current), why);
}

// Tokens may arrive faster than frames.
function drawSoon() {
  if (isDrawn) {
    isDrawn = false;
    requestAnimationFrame(() => {
      isDrawn = true;
      if (isBusy(current)) {
        drawLast(current, true, why);
      }
    });
  }
}

function keep(chat) {
  const text = store.save(chat);
  if (text) {
    drawNotice(text);
  }
}

// ---- conversations ----

function open(chat) {
  current = chat;
  session?.setItem(OPEN, chat.id);
  drawer(false);
  drawNotice("");
  draw();
  scrollToEnd();
  focusText();
}

async function rename(chat) {
  const values = await ask("rename", {title: chat.title || titleOf(chat)});
  if (values && values.title.trim()) {
    chat.title = values.title.trim();
    keep(chat);
    draw();
  }
}

async function remove(chat) {
  get("remove-name").textContent = titleOf(chat);
  if (await ask("remove", {})) {
    runs.get(chat.id)?.abort();
    store.remove(chat.id);
    chat.isRemoved = true;
    chat.id === current.id ? open(store.create()) : drawLists();
  }
}

// ---- answers ----

// Receives the answer of a request. If it does not fit into the context, the oldest messages are left out.
async function receive(chat, reply, signal) {
  const settings = store.settings, messages = messagesOf(chat), first = settings.system ? [{role: "system", content: settings.system}] : [];
  const parameters = parametersOf(settings), n = messages.length, notes = [];
  let start = 0, usage = null, finish = null;
  while (true) {
    try {
      for await (const part of client.complete({messages: [...first, ...messages], parameters}, signal)) {
        start = start || performance.now();
        reply.content += part.text;
        finish = part.finish || finish;
        usage = part.usage || usage;
        drawSoon();
      }
      break;
    } catch (error) {
      if (error.code !== "context_length_exceeded" || messages.length < 3) {
        throw error;
      }
      messages.splice(0, 2);
    }
  }
  const s = (performance.now() - start) / 1000, made = usage ? usage.completion_tokens : 0;
  notes.push(made > 1 && s > 0 ? made + " tokens, " + (made / s).toFixed(1) + "/s" : made + " tokens");
  notes.push(finish === "length" ? "ended by the token limit" : "");
  notes.push(messages.length < n ? (n - messages.length) + " oldest messages did not fit into the context" : "");
  return notes.filter(note => note).join("; ");
}

function errorOf(error) {
  if (error.status === 429 || error.status === 503) {
    return {message: "The server is busy: " + error.message, detail: error.detail + (error.retryS ? "; try again in " + error.retryS + " s" : "")};
  }
  if (error.status === undefined) { // not an answer of the server: the network or the page
    return {message: "The connection to the server failed.", detail: error.message};
  }
  const cause = error.status >= 500 ? "The server failed: " : "The server refused the request: ";
  return {message: (error.status ? cause : "") + error.message, detail: error.detail};
}

// Adds an answer to the conversation. With a missing or wrong key, asks for the key and sends the request a second time.
async function answer(chat) {
  const control = new AbortController(), reply = {role: "assistant", content: ""};
  let needsKey = false;
  chat.messages.push(reply);
  runs.set(chat.id, control);
  draw();
  scrollToEnd();
  try {
    reply.note = await receive(chat, reply, control.signal);
  } catch (error) {
    if (control.signal.aborted) {
      reply.note = "stopped";
    } else {
      reply.error = errorOf(error);
      needsKey = error.status === 401;
    }
  }
  runs.delete(chat.id);
  if (chat.isRemoved) {
    return;
  }
  keep(chat);
  drawLists();
  if (chat.id === current.id) {
    drawLast(chat, false, "");
    get("spoken").textContent = reply.error ? reply.error.message : "The answer is complete.";
  }
  if (needsKey && await askKey()) {
    regenerate(chat);
  }
}

function regenerate(chat) {
  if (!isBusy(chat)) {
    chat.messages.pop();
    answer(chat);
  }
}

function send() {
  const text = get("text").value.trim();
  if (text === "" || isBusy(current)) {
    return;
  }
  get("text").value = "";
  resize();
  current.time = Date.now();
  current.messages.push({role: "user", content: text});
  session?.setItem(OPEN, current.id);
  drawNotice("");
  keep(current);
  answer(current);
}

function stop() {
  runs.get(current.id)?.abort();
  focusText();
}

async function copy(message) {
  try {
    await navigator.clipboard.writeText(message.content);
  } catch { // the clipboard requires a secure connection; the selection does not
    const box = document.body.appendChild(Object.assign(document.createElement("textarea"), {value: message.content}));
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  drawNotice("Copied.");
  setTimeout(() => get("notice").textContent === "Copied." && drawNotice(""), POLL_MS);
}

// ---- dialogs ----

// Opens a dialog with the values of its fields. Returns the new values, or null if it is cancelled or already open.
function ask(name, values) {
  const dialog = get(name), form = dialog.querySelector("form");
  if (dialog.open) {
    return Promise.resolve(null);
  }
  form.reset();
  for (const [field, value] of Object.entries(values)) {
    form.elements[field].value = value;
  }
  return new Promise(resolve => {
    let given = null;
    form.onsubmit = event => {
      event.preventDefault();
      given = Object.fromEntries(new FormData(form));
      dialog.close();
    };
    form.querySelector("[value=cancel]").onclick = () => dialog.close();
    // The close event is asynchronous: if the promise resolved earlier, the next ask() could open the dialog and be ended by this
    // event.
    dialog.onclose = () => resolve(given);
    dialog.showModal();
  });
}

async function askKey() {
  const values = await ask("key", {});
  if (!values) {
    return false;
  }
  client.key = values.key.trim();
  session?.setItem(KEY, client.key);
  return true;
}

async function askSettings() {
  const values = await ask("settings", store.settings);
  if (values) {
    store.settings = Object.fromEntries(FIELDS.map(name => [name, values[name].trim()]));
  }
}

// ---- the server ----

async function poll() {
  if (!document.hidden) {
    let failure = "";
    const health = await client.health().catch(error => {
      failure = error.name === "TimeoutError" ? "answers slowly" : "does not answer";
      return null;
    });
    why = health?.queue?.why_waiting ? "Waiting for the first token. The queue waits: " + health.queue.why_waiting : "";
    drawHealth(health, failure);
    if (isBusy(current)) {
      drawSoon();
    }
  }
  setTimeout(poll, POLL_MS);
}

// ---- events ----

const phone = window.matchMedia("(max-width: 720px)");

// On a phone, the list of conversations is a drawer.
function drawer(isOpen) {
  document.body.classList.toggle("drawer", isOpen);
  get("menu").ariaExpanded = String(isOpen);
  get("side").inert = phone.matches && !isOpen;
  document.querySelector("main").inert = phone.matches && isOpen;
}

// On a phone, the focus would open the keyboard.
function focusText() {
  if (!phone.matches) {
    get("text").focus();
  }
}

function resize() {
  const text = get("text");
  text.style.height = "auto";
  text.style.height = Math.min(text.scrollHeight + 2, window.innerHeight * 0.4) + "px";
}

function onKey(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === get("text")) {
    event.preventDefault();
    send();
  } else if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
    document.body.classList.contains("drawer") ? drawer(false) : stop();
  }
}

function onListClick(event) {
  const {action, id} = event.target.closest("button")?.dataset || {}, chat = id && store.chats.get(id);
  if (chat) {
    ({open, rename, remove})[action](chat);
  }
}

function onLogClick(event) {
  const button = event.target.closest("button"), index = button?.closest("article").dataset.index;
  if (button?.dataset.action === "copy") {
    copy(current.messages[index]);
  } else if (button?.dataset.action === "regenerate") {
    regenerate(current);
    focusText();
  }
}

// Another tab has changed a conversation. A running answer of this tab overwrites it at its end.
function onStorage(event) {
  const id = event.key && !runs.has(event.key.split(".").pop()) ? store.read(event.key) : null;
  if (id === current.id) {
    current = store.chats.get(id) || store.create();
    draw();
  } else if (id) {
    drawLists();
  }
}

get("composer").addEventListener("submit", event => {
  event.preventDefault();
  send();
});
get("text").addEventListener("input", resize);
get("stop").addEventListener("click", stop);
get("new").addEventListener("click", () => open(store.create()));
get("list").addEventListener("click", onListClick);
get("log").addEventListener("click", onLogClick);
get("settings-open").addEventListener("click", askSettings);
get("give-key").addEventListener("click", askKey);
get("menu").addEventListener("click", () => drawer(true));
get("shade").addEventListener("click", () => drawer(false));
phone.addEventListener("change", () => drawer(false));
document.addEventListener("keydown", onKey);
window.addEventListener("storage", onStorage);
window.addEventListener("pagehide", () => runs.forEach((_, id) => store.chats.has(id) && keep(store.chats.get(id))));
drawer(false);
draw();
scrollToEnd();
focusText();
poll();
