// model.js: class Store: the conversations and the settings, kept in the browser's localStorage. Each conversation has its own key,
// so that tabs with different conversations do not overwrite each other.
//
// A conversation: {id, title, time, messages: [{role, content, note, error}]}. note and error are set for answers: a remark on how
// the answer ended, and {message, detail} of a request that failed.

export const LIMIT = {chars: 4000000, chats: 200, title: 60}; // of all conversations together, about what browsers store

const PREFIX = "berth.chat.", SETTINGS = "berth.settings";
export const FIELDS = ["system", "temperature", "top_p", "max_tokens", "seed"];

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// Storage may hold anything: another version of the page, or an edit of the user.
function isChat(chat) {
  return chat !== null && typeof chat === "object" && typeof chat.id === "string" && typeof chat.title === "string" &&
    Number.isFinite(chat.time) && Array.isArray(chat.messages) &&
    chat.messages.every(m => m && (m.role === "user" || m.role === "assistant") && typeof m.content === "string");
}

export class Store {
  // storage: null if the browser forbids it; then everything is kept until the tab is closed.
  constructor(storage) {
    Object.assign(this, {storage, chats: new Map(), sizes: new Map(), own: null});
    for (const key of storage ? Object.keys(storage) : []) {
      this.read(key);
    }
  }

  // Reads a conversation that another tab has changed or deleted. Returns its id, or null if the key is not that of a conversation.
  read(key) {
    if (!key.startsWith(PREFIX)) {
      return null;
    }
    const id = key.slice(PREFIX.length), text = this.storage.getItem(key), chat = parse(text);
    if (isChat(chat) && chat.id === id) {
      this.chats.set(id, chat);
      this.sizes.set(id, text.length);
    } else {
      this.forget(id);
    }
    return id;
  }

  forget(id) {
    this.chats.delete(id);
    this.sizes.delete(id);
  }

  // The latest conversation is first.
  list() {
    return [...this.chats.values()].sort((a, b) => b.time - a.time);
  }

  create() {
    const random = crypto.getRandomValues(new Uint32Array(2));
    return {id: Date.now().toString(36) + random[0].toString(36) + random[1].toString(36), title: "", time: Date.now(), messages: []};
  }

  // Deletes the oldest conversation other than `kept`. Returns whether there was one.
  drop(kept) {
    const oldest = this.list().filter(chat => chat.id !== kept).pop();
    if (oldest) {
      this.remove(oldest.id);
    }
    return oldest !== undefined;
  }

  isFull() {
    return this.chats.size > LIMIT.chats || [...this.sizes.values()].reduce((a, b) => a + b, 0) > LIMIT.chars;
  }

  // Returns a text for the user if not everything could be kept, or "".
  save(chat) {
    const text = JSON.stringify(chat);
    let nDropped = 0;
    this.chats.set(chat.id, chat);
    this.sizes.set(chat.id, text.length);
    while (this.isFull() && this.drop(chat.id)) {
      nDropped++;
    }
    let isKept = text.length <= LIMIT.chars && this.write(PREFIX + chat.id, text);
    while (!isKept && text.length <= LIMIT.chars && this.storage && this.drop(chat.id)) {
      nDropped++;
      isKept = this.write(PREFIX + chat.id, text);
    }
    if (!isKept) {
      return "This browser does not keep the conversation: it has " + text.length.toLocaleString("en") + " characters, or storage is switched off.";
    }
    return nDropped > 0 ? "Storage was full: the oldest conversations were deleted (" + nDropped + ")." : "";
  }

  write(key, text) {
    try {
      this.storage.setItem(key, text);
      return true;
    } catch {
      return false; // the quota is used up, or storage is null
    }
  }

  remove(id) {
    this.forget(id);
    if (this.storage) {
      this.storage.removeItem(PREFIX + id);
    }
  }

  // The settings are texts, as in their fields; "": the default of the server.
  get settings() {
    const kept = this.own || parse(this.storage && this.storage.getItem(SETTINGS));
    return Object.fromEntries(FIELDS.map(name => [name, String((kept && kept[name]) ?? "")]));
  }

  set settings(values) {
    this.own = this.write(SETTINGS, JSON.stringify(values)) ? null : values;
  }
}

export function titleOf(chat) {
  const first = chat.messages.find(m => m.role === "user"), text = chat.title || (first ? first.content.trim().replace(/\s+/g, " ") : "New chat");
  return text.length > LIMIT.title ? text.slice(0, LIMIT.title - 1) + "\u2026" : text;
}

// Returns the messages of a request. Answers without a text are left out, and messages of the same role are joined, because most
// templates require that the roles alternate.
export function messagesOf(chat) {
  const list = [];
  for (const {role, content} of chat.messages) {
    const last = list[list.length - 1];
    if (content === "") {
      continue;
    }
    if (last && last.role === role) {
      last.content += "\n\n" + content;
    } else {
      list.push({role, content});
    }
  }
  return list;
}

// Returns the parameters of a request that the settings give a value.
export function parametersOf(settings) {
  const numbers = FIELDS.filter(name => name !== "system" && settings[name].trim() !== "").map(name => [name, Number(settings[name])]);
  return Object.fromEntries(numbers.filter(([, value]) => Number.isFinite(value)));
}
