"use strict";
// model.js: class Plan: the data of one plan as typed arrays. It finds the tensor at a point, the live bytes at a step, and the
// reason why a tensor is not at a lower address.

class Plan {
  constructor(raw, index) {
    Object.assign(this, {title: raw.title, index, first: raw.first, last: raw.last, peak: raw.peak, bound: raw.bound, hasOps: raw.hasOps});
    this.buffers = raw.buffers;
    this.items = {n: raw.items.n};
    for (const key of ["first", "last", "size", "at", "align", "buffer", "fixed"]) {
      this.items[key] = Float64Array.from(raw.items[key]);
    }
    const t = raw.tensors;
    this.tensors = {n: t.n, name: t.name, op: t.op, type: t.type, uses: t.uses, shape: t.shape, item: Int32Array.from(t.item),
      first: Float64Array.from(t.first), last: Float64Array.from(t.last), family: Uint8Array.from(t.family)};
    this.text = t.name.map((name, i) => (name + " " + t.op[i] + " " + t.type[i]).toLowerCase());
    // The colour shows the family of the op. If the plan has no ops, colours alternate, so that neighbours differ.
    this.colour = Uint8Array.from(t.family, (family, i) => this.hasOps ? family : i % 10);
    this.order = this.buffers.map((_, b) => this.orderOf(b));
    this.live = this.buffers.map((_, b) => this.liveOf(b));
    this.again = t.name.map(name => name.endsWith(" (again)")); // recomputed to keep the memory limit
    this.moved = t.name.map(name => name.endsWith(" (out)") || name.endsWith(" (in)")); // spilled to another pool, or read back
    this.keys = new Map(); // from keyOf(tensor) to tensor, to find the same tensor in the other plan
    this.made = new Map(); // from step to the tensor that it computes
    for (let i = t.n - 1; i >= 0; i--) {
      this.keys.set(this.keyOf(i), i);
      if (t.op[i] && t.op[i] !== "NONE") {
        this.made.set(t.first[i], i);
      }
    }
    this.links = null;
  }

  // Returns the sources and the readers of a tensor. They are computed at the first call.
  linksOf(i) {
    if (this.links === null) {
      this.links = Array.from({length: this.tensors.n}, () => ({from: [], to: []}));
      this.tensors.uses.forEach((uses, k) => uses.split(" ").filter(step => step).forEach(step => {
        const user = this.made.get(Number(step));
        if (user !== undefined && user !== k) {
          this.links[k].to.push(user);
          this.links[user].from.push(k);
        }
      }));
    }
    return this.links[i];
  }

  // Returns the key that identifies a tensor in another plan of the same graph: its name, op and first step.
  keyOf(i) {
    return this.tensors.name[i] + "\n" + this.tensors.op[i] + "\n" + this.tensors.first[i];
  }

  // Returns the tensors of a buffer grouped by colour, because changing the fill style is slow.
  orderOf(buffer) {
    const own = [];
    for (let i = 0; i < this.tensors.n; i++) {
      const item = this.tensors.item[i];
      if (this.items.buffer[item] === buffer && this.items.size[item] > 0) {
        own.push(i);
      }
    }
    own.sort((a, b) => this.colour[a] - this.colour[b] || a - b);
    return Int32Array.from(own);
  }

  // Returns the curve of live bytes: from steps[k] up to steps[k + 1], count[k] items with bytes[k] bytes in total are alive.
  liveOf(buffer) {
    const {n, first, last, size, buffer: of} = this.items, change = new Map();
    const add = (step, bytes, count) => {
      const at = change.get(step) || [0, 0];
      change.set(step, [at[0] + bytes, at[1] + count]);
    };
    for (let i = 0; i < n; i++) {
      if (of[i] === buffer && size[i] > 0) {
        add(first[i], size[i], 1);
        add(last[i] + 1, -size[i], -1);
      }
    }
    const steps = [...change.keys()].sort((a, b) => a - b), bytes = [], count = [];
    let sum = 0, pieces = 0, most = 0;
    for (const step of steps) {
      sum += change.get(step)[0];
      pieces += change.get(step)[1];
      bytes.push(sum);
      count.push(pieces);
      most = Math.max(most, sum);
    }
    return {steps, bytes, count, most};
  }

  aliveAt(buffer, step) {
    const {steps, bytes, count} = this.live[buffer];
    let low = 0, high = steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      steps[middle] <= step ? low = middle + 1 : high = middle;
    }
    return low === 0 ? {bytes: 0, count: 0} : {bytes: bytes[low - 1], count: count[low - 1]};
  }

  // Returns the tensors that are alive at a step, largest first.
  listAt(buffer, step) {
    const {item, first, last} = this.tensors, {size} = this.items;
    return [...this.order[buffer]].filter(i => first[i] <= step && step <= last[i]).sort((a, b) => size[item[b]] - size[item[a]] || a - b);
  }

  // Returns the tensor at a step and an address, or the nearest one within slackSteps and slackBytes; -1: none. The slack is for
  // tensors so small that they are drawn enlarged.
  find(buffer, step, address, slackSteps, slackBytes) {
    const t = this.tensors, {at, size} = this.items;
    let best = -1, bestMiss = Infinity;
    for (const i of this.order[buffer]) {
      const item = t.item[i];
      const missX = Math.max(t.first[i] - step, step - t.last[i] - 1, 0), missY = Math.max(at[item] - address, address - at[item] - size[item], 0);
      if (missX <= slackSteps && missY <= slackBytes) {
        const miss = missX / (slackSteps || 1) + missY / (slackBytes || 1);
        if (miss < bestMiss) {
          best = i;
          bestMiss = miss;
        }
      }
    }
    return best;
  }

  // Returns the tensors that use the same memory one after another.
  chain(i) {
    const item = this.tensors.item[i], all = [];
    for (let k = i; k >= 0 && this.tensors.item[k] === item; k--) {
      all.unshift(k);
    }
    for (let k = i + 1; k < this.tensors.n && this.tensors.item[k] === item; k++) {
      all.push(k);
    }
    return all;
  }

  // Returns the tensor that occupies an item during steps first to last.
  tensorOf(item, first, last) {
    for (let i = 0; i < this.tensors.n; i++) {
      if (this.tensors.item[i] === item && this.tensors.first[i] <= last && this.tensors.last[i] >= first) {
        return i;
      }
    }
    return this.tensors.item.indexOf(item);
  }

  // Returns why tensor i is not at a lower address. The field kind of the result is:
  // - "bottom": the tensor is at address 0;
  // - "fixed": its address is given in the input;
  // - "held": no hole below it is large enough;
  // - "free": it could be at the lower address `at`.
  // below: the tensors directly below it. isPeak: its end is the peak. isOptimal: no plan has a lower peak.
  why(i) {
    const me = this.tensors.item[i], {n, first, last, size, at, align, buffer, fixed} = this.items;
    if (at[me] === 0) {
      return {kind: "bottom", below: []};
    }
    const under = []; // items that are lower and alive at the same time
    for (let k = 0; k < n; k++) {
      if (k !== me && buffer[k] === buffer[me] && size[k] > 0 && first[k] <= last[me] && last[k] >= first[me] && at[k] < at[me]) {
        under.push(k);
      }
    }
    under.sort((a, b) => at[a] - at[b]);
    const up = x => Math.ceil(x / align[me]) * align[me];
    let cursor = 0, hole = -1;
    for (const k of under) {
      if (hole < 0 && up(cursor) + size[me] <= at[k]) {
        hole = up(cursor);
      }
      cursor = Math.max(cursor, at[k] + size[k]);
    }
    if (hole < 0 && up(cursor) < at[me]) {
      hole = up(cursor);
    }
    const touching = under.filter(k => up(at[k] + size[k]) === at[me]);
    const below = (touching.length > 0 ? touching : under.slice(-3)).map(k => this.tensorOf(k, first[me], last[me]));
    return {kind: fixed[me] ? "fixed" : hole >= 0 ? "free" : "held", below, at: hole,
      isPeak: at[me] + size[me] === this.buffers[buffer[me]].peak, isOptimal: this.buffers[buffer[me]].peak === this.buffers[buffer[me]].bound};
  }
}

// ---- numbers as text ----

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function unitOf(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit < UNITS.length - 1; unit++) {
    bytes /= 1024;
  }
  return unit;
}

function human(bytes, unit = unitOf(Math.abs(bytes)), digits = 2) {
  const value = bytes / 1024 ** unit;
  return (Number.isInteger(value) ? String(value) : value.toFixed(digits)) + " " + UNITS[unit];
}

function exact(bytes) {
  return bytes.toLocaleString("en-US") + (bytes === 1 ? " byte" : " bytes") + (bytes >= 1024 ? " (" + human(bytes) + ")" : "");
}
