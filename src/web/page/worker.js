"use strict";
// worker.js: plans one file at a time, so that the page stays responsive. `berth` is the function that emscripten generates.

const HEADER_MAX = 64 * 2 ** 20; // bytes of a model file that are read; its header is shorter
const MODEL_SIZE = 2 ** 52; // size that a model file appears to have (web.c)

// Calls a function of web.c. Pointers and sizes have 64 bits.
function call(module, name, path, ...sizes) {
  const text = new TextEncoder().encode(path + "\0"), at = module._malloc(text.length);
  module.HEAPU8.set(text, at);
  const result = Number(module["_" + name](BigInt(at), ...sizes.map(BigInt)));
  module._free(at);
  return result;
}

// Returns the bytes that the planner needs.
async function bytesOf(file) {
  const start = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  if (start[0] === 0x1f && start[1] === 0x8b) { // gzip
    const unpacked = new Response(file.stream().pipeThrough(new DecompressionStream("gzip")));
    return new Uint8Array(await unpacked.arrayBuffer().catch(() => {
      throw new Error("the file is damaged: it cannot be unpacked as gzip");
    }));
  }
  const isModel = String.fromCharCode(...start) === "GGUF";
  return new Uint8Array(await (isModel ? file.slice(0, HEADER_MAX) : file).arrayBuffer());
}

function pageOf(module, name, bytes, limit) {
  const path = "/" + (name.replaceAll("/", "_").replace(/\.gz$/, "") || "plan");
  module.FS.writeFile(path, bytes);
  if (String.fromCharCode(...bytes.subarray(0, 4)) === "GGUF") {
    module.FS.lookupPath(path).node.usedBytes = MODEL_SIZE;
  }
  const page = call(module, "web_page", path, bytes.length, limit);
  return page !== 0 ? {page: module.UTF8ToString(page), us: module._web_plan_us()} : {error: module.UTF8ToString(Number(module._web_error()))};
}

// Each file gets a new module, because its memory never shrinks.
async function plan({name, file, limit}) {
  try {
    const quiet = () => {};
    return pageOf(await berth({print: quiet, printErr: quiet}), name, await bytesOf(file), limit);
  } catch (error) {
    return {error: name + ": " + (error.message || error)};
  }
}

if (typeof self === "undefined") {
  globalThis.berthPageOf = pageOf; // for tests under node
} else {
  self.onmessage = async event => self.postMessage({id: event.data.id, ...await plan(event.data)});
}
