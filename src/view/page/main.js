"use strict";
// main.js: the state of the page, and the handlers of pointer, keys, search and buttons.

(() => {
  const $ = id => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const plans = data.plans.map((raw, index) => new Plan(raw, index));
  const after = plans[plans.length - 1], compared = plans.length > 1;
  const painter = new Painter($("map"), $("over"), data.families);
  const state = {mode: compared ? 0 : 2, buffer: 0, family: -1, search: "", matches: [], match: -1, hover: null, kept: null, step: null, x: 0, y: 0};
  const view = {x0: 0, x1: 1, y0: 0, y1: 1};
  let limits = {...view}, pending = false, moving = 0, isSheet = false; // isSheet: the details are shown below the map, on a narrow screen

  // ---- state and view ----

  function buildPanels() {
    const shown = !compared ? plans : state.mode === 0 ? plans : [plans[state.mode - 1]];
    painter.panels = shown.filter(plan => state.buffer < plan.buffers.length).map(plan => {
      const name = plan.buffers.length > 1 ? bufferName(plan, state.buffer) : "";
      const which = compared ? (plan.index === 0 ? "Before: " : "After: ") + plan.title : "";
      return new Panel(plan, state.buffer, [which, name].filter(text => text).join(", "));
    });
    const all = plans.filter(plan => state.buffer < plan.buffers.length); // compared plans have the same scale
    const top = Math.max(1, ...all.map(plan => plan.buffers[state.buffer].peak));
    limits = {x0: Math.min(...plans.map(plan => plan.first)), x1: Math.max(...plans.map(plan => plan.last)) + 1, y0: 0, y1: top * 1.04};
    resize();
  }

  function bufferName(plan, b) {
    return plan.buffers[b].name || "buffer " + b;
  }

  const visible = () => state.search === "" && state.family < 0 ? null : (plan, i) =>
    (state.family < 0 || plan.tensors.family[i] === state.family) && (state.search === "" || plan.text[i].includes(state.search));

  function redraw() {
    if (!pending) {
      pending = true;
      requestAnimationFrame(paint);
    }
  }

  function paint() {
    pending = false;
    painter.draw(view, visible());
    redrawOver();
  }

  function redrawOver() {
    const chosen = state.kept || state.hover;
    const why = chosen ? chosen.plan.why(chosen.i) : null;
    painter.drawOver(view, {step: state.step, boxes: panel => {
      const boxes = [];
      if (state.match >= 0 && state.matches[state.match].plan === panel.plan) {
        boxes.push([state.matches[state.match].i, "match"]);
      }
      if (chosen && chosen.plan === panel.plan) {
        const links = state.kept ? chosen.plan.linksOf(chosen.i) : {from: [], to: []}, {item} = panel.plan.tensors;
        const here = i => panel.plan.items.buffer[item[i]] === panel.buffer;
        why.below.forEach(i => boxes.push([i, "below"]));
        links.from.filter(here).forEach(i => boxes.push([i, "from"]));
        links.to.filter(here).forEach(i => boxes.push([i, "to"]));
        boxes.push([chosen.i, "chosen"]);
      } else if (chosen) {
        const twin = panel.plan.keys.get(chosen.plan.keyOf(chosen.i));
        if (twin !== undefined && panel.plan.items.buffer[panel.plan.tensors.item[twin]] === panel.buffer) {
          boxes.push([twin, "chosen"]);
        }
      }
      return boxes;
    }});
  }

  function resize() {
    const box = $("over").getBoundingClientRect();
    painter.resize(box.width, box.height);
    paint(); // immediately, because a resized canvas is black until it is drawn
  }

  // ---- moving and zooming ----

  function setView(x0, x1, y0, y1) {
    const width = Math.min(Math.max(x1 - x0, 2), limits.x1 - limits.x0 || 2), height = Math.min(Math.max(y1 - y0, 16), limits.y1 - limits.y0);
    view.x0 = Math.min(Math.max(x0, limits.x0), limits.x1 - width);
    view.x1 = view.x0 + width;
    view.y0 = Math.min(Math.max(y0, limits.y0), limits.y1 - height);
    view.y1 = view.y0 + height;
    redraw();
  }

  function glideTo(x0, x1, y0, y1) {
    const from = {...view}, start = performance.now(), id = ++moving;
    const frame = now => {
      const t = Math.min((now - start) / 220, 1), k = t * (2 - t), mix = (a, b) => a + (b - a) * k;
      if (id === moving) {
        setView(mix(from.x0, x0), mix(from.x1, x1), mix(from.y0, y0), mix(from.y1, y1));
        if (t < 1) {
          requestAnimationFrame(frame);
        }
      }
    };
    matchMedia("(prefers-reduced-motion: reduce)").matches ? setView(x0, x1, y0, y1) : requestAnimationFrame(frame);
  }

  const fit = () => glideTo(limits.x0, limits.x1, limits.y0, limits.y1);

  // Zooms around a step and an address, which keep their positions on the screen.
  function zoom(factorX, factorY, step = (view.x0 + view.x1) / 2, address = (view.y0 + view.y1) / 2) {
    moving++;
    setView(step - (step - view.x0) * factorX, step + (view.x1 - step) * factorX, address - (address - view.y0) * factorY, address + (view.y1 - address) * factorY);
  }

  function pan(dx, dy) { // in fractions of the view
    const w = (view.x1 - view.x0) * dx, h = (view.y1 - view.y0) * dy;
    moving++;
    setView(view.x0 + w, view.x1 + w, view.y0 + h, view.y1 + h);
  }

  function place(event) {
    const box = $("over").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top, panel = painter.panelAt(y);
    const step = view.x0 + (x - panel.x) / panel.w * (view.x1 - view.x0), address = view.y0 + (panel.y + panel.h - y) / panel.h * (view.y1 - view.y0);
    const inX = x >= panel.x && x <= panel.x + panel.w;
    return {x, y, panel, step, address, inX, inMap: inX && y >= panel.y && y <= panel.y + panel.h};
  }

  const ALIVE_SHOWN = 8;

  // ---- details ----

  const cell = (tag, text) => {
    const element = document.createElement(tag);
    element.append(text);
    return element;
  };

  function whyText(plan, i, why) {
    const names = why.below.slice(0, 4).map(k => "\u201c" + (plan.tensors.name[k] || "?") + "\u201d").join(", ") + (why.below.length > 4 ? " and " + (why.below.length - 4) + " more" : "");
    switch (why.kind) {
      case "bottom": return "It is at the bottom, address 0.";
      case "fixed": return "Its address is fixed: it is given in the input.";
      case "free": return "It could be lower, at " + human(why.at) + (why.isOptimal ? ", but that would gain nothing: the peak is at the bound." : why.isPeak ? ". It reaches the peak, so this plan can be improved." : ", but that would gain nothing: another tensor reaches the peak.") + (names ? " Below it: " + names + "." : "");
      default: return "It cannot be lower: " + names + (why.below.length > 1 ? " are" : " is") + " below it and alive at the same time, and no hole below is large enough.";
    }
  }

  function detailRows(plan, i) {
    const t = plan.tensors, item = t.item[i], {size, at, buffer} = plan.items, chain = plan.chain(i), next = chain[chain.indexOf(i) + 1];
    const rows = [], shape = t.shape[i].slice();
    while (shape.length > 1 && shape[shape.length - 1] === 1) {
      shape.pop();
    }
    if (t.op[i]) {
      rows.push(["op", t.op[i] === "NONE" ? "none: an input" : t.op[i] + ", " + data.families[t.family[i]].name]);
    }
    if (shape[0] > 0) {
      rows.push(["shape", shape.map(n => n.toLocaleString("en-US")).join(" \u00d7 ") + (t.type[i] ? " " + t.type[i] : "")]);
    }
    rows.push(["bytes", exact(size[item])], ["address", (at[item] === 0 ? "0" : human(at[item])) + " to " + human(at[item] + size[item])]);
    if (plan.again[i]) {
      rows.push(["recomputed", "to keep the memory limit"]);
    }
    if (plan.moved[i]) {
      rows.push(["spilled", t.name[i].endsWith(" (out)") ? "a copy in another pool, to keep the memory limit" : "read back from another pool"]);
    }
    rows.push(["first use", "step " + t.first[i]]);
    rows.push(["last use", "step " + (next === undefined ? t.last[i] : t.last[i] + 1 + ", where \u201c" + t.name[next] + "\u201d reuses its memory")]);
    if (plan.buffers.length > 1) {
      rows.push(["buffer", bufferName(plan, buffer[item])]);
    }
    if (chain.length > 2) {
      rows.push(["in place", chain.length + " tensors use this memory one after another"]);
    }
    if (compared) {
      const other = plans[1 - plan.index], twin = other.keys.get(plan.keyOf(i)), word = other.index === 0 ? "before" : "after";
      rows.push([word, twin === undefined ? "not in the other plan" : "at " + human(other.items.at[other.tensors.item[twin]])]);
    }
    return rows;
  }

  // Lists the sources or the readers of a tensor as buttons that select them.
  function linkList(chosen, word, list) {
    const box = cell("div", word + ":"), own = chosen.plan.tensors;
    box.className = "links " + (word === "Sources" ? "from" : "to");
    for (const k of list.slice(0, ALIVE_SHOWN)) {
      addButton(box, own.name[k] || "(no name)", () => choose(chosen.plan, k, own.first[k]));
    }
    box.append(list.length > ALIVE_SHOWN ? " and " + (list.length - ALIVE_SHOWN) + " more" : "");
    return box;
  }

  function links(chosen) {
    const {from, to} = chosen.plan.linksOf(chosen.i);
    return [["Sources", from], ["Readers", to]].filter(([, list]) => list.length > 0).map(([word, list]) => linkList(chosen, word, list));
  }

  // Replaces the selected tensor, whose details stay open, by tensor i of the plan. It may be in another buffer.
  function choose(plan, i, step) {
    const {x, y} = state.kept, buffer = plan.items.buffer[plan.tensors.item[i]];
    if (buffer !== state.buffer) {
      setBuffer(buffer);
    }
    state.kept = {plan, i, x, y, step};
    showDetails();
    redrawOver();
  }

  // Lists the values that are alive at the step of a click as buttons that select them, largest first.
  function aliveList(chosen) {
    const {plan, i} = chosen, {item, first, last} = plan.tensors, buffer = plan.items.buffer[item[i]];
    const step = Math.min(Math.max(chosen.step === undefined ? first[i] : chosen.step, first[i]), last[i]);
    const all = plan.listAt(buffer, step), list = document.createElement("ol"), sum = plan.aliveAt(buffer, step).bytes;
    for (const k of all.slice(0, ALIVE_SHOWN)) {
      const button = addButton(document.createElement("li"), plan.tensors.name[k] || "(no name)", () => choose(plan, k, step), {"aria-pressed": String(k === i)});
      const size = plan.items.size[item[k]];
      button.parentElement.append(" " + human(size) + ", " + (100 * size / sum).toFixed(1) + "%");
      list.append(button.parentElement);
    }
    if (all.length > ALIVE_SHOWN) {
      list.append(cell("li", all.length - ALIVE_SHOWN + " others"));
    }
    const box = cell("div", "Alive at step " + step + ": " + human(sum));
    box.className = "alive";
    box.append(list);
    return box;
  }

  function showDetails() {
    const chosen = state.kept || state.hover, panel = $("details");
    panel.hidden = !chosen;
    if (document.querySelector("main").classList.toggle("sheet", !!chosen && matchMedia("(max-width: 640px)").matches) !== isSheet) {
      isSheet = !isSheet;
      resize(); // the height of the map has changed
    }
    if (!chosen) {
      return;
    }
    const {plan, i} = chosen, title = document.createElement("h2"), table = document.createElement("table"), swatch = document.createElement("i");
    swatch.style.background = painter.fills[plan.colour[i]];
    title.append(swatch, plan.tensors.name[i] || "(no name)");
    for (const [key, text] of detailRows(plan, i)) {
      const row = document.createElement("tr");
      row.append(cell("th", key), cell("td", text));
      table.append(row);
    }
    panel.replaceChildren(title, table, cell("p", whyText(plan, i, plan.why(i))), ...state.kept ? [...links(chosen), aliveList(chosen)] : []);
    panel.classList.toggle("kept", state.kept !== null);
    const w = panel.offsetWidth, h = panel.offsetHeight, x = chosen.x, y = chosen.y;
    panel.style.left = Math.max(4, x + 18 + w > painter.width ? x - w - 14 : x + 18) + "px";
    panel.style.top = Math.max(4, Math.min(y + 14, painter.height - h - 6)) + "px";
  }

  function hoverAt(event) {
    const at = place(event), {panel} = at, step = Math.floor(at.step);
    const slackX = 3 / panel.w * (view.x1 - view.x0), slackY = 3 / panel.h * (view.y1 - view.y0);
    let i = at.inMap ? panel.plan.find(panel.buffer, at.step, at.address, 0, 0) : -1;
    if (at.inMap && i < 0) {
      i = panel.plan.find(panel.buffer, at.step, at.address, slackX, slackY);
    }
    state.hover = i < 0 ? null : {plan: panel.plan, i, x: at.x, y: at.y, step};
    state.step = at.inX ? step + 0.5 : null;
    if (at.inX && step >= panel.plan.first && step <= panel.plan.last) {
      const alive = panel.plan.aliveAt(panel.buffer, step);
      $("status").textContent = "step " + step + ": " + human(alive.bytes) + " alive in " + alive.count + (alive.count === 1 ? " piece" : " pieces") + " of memory" + (at.inMap ? "; address " + human(Math.max(0, Math.round(at.address))) : "");
    } else {
      showHint();
    }
    showDetails();
    redrawOver();
  }

  function showHint() {
    $("status").textContent = "Wheel zooms, drag moves, / searches, ? shows all keys.";
  }

  // ---- search ----

  function search(text) {
    state.search = text.trim().toLowerCase();
    state.match = -1;
    state.matches = [];
    if (state.search !== "") {
      for (const plan of plans) {
        for (let i = 0; i < plan.tensors.n; i++) {
          if (plan.text[i].includes(state.search)) {
            state.matches.push({plan, i});
          }
        }
      }
      state.matches.sort((a, b) => b.plan.index - a.plan.index || a.plan.tensors.first[a.i] - b.plan.tensors.first[b.i]);
    }
    showMatches();
    redraw();
  }

  function showMatches() {
    $("matches").textContent = state.search === "" ? "" : state.match < 0 ? String(state.matches.length) : state.match + 1 + "/" + state.matches.length;
  }

  // Selects the next match (by = 1) or the previous one (by = -1) and zooms to it.
  function goToMatch(by) {
    const n = state.matches.length;
    if (n === 0) {
      return;
    }
    state.match = state.match < 0 ? (by > 0 ? 0 : n - 1) : (state.match + by + n) % n;
    const {plan, i} = state.matches[state.match], t = plan.tensors, item = t.item[i];
    const buffer = plan.items.buffer[item];
    if (buffer !== state.buffer) {
      setBuffer(buffer);
    }
    if (compared && state.mode !== 0 && state.mode !== plan.index + 1) {
      setMode(plan.index + 1);
    }
    const middle = (t.first[i] + t.last[i] + 1) / 2, width = Math.min(limits.x1 - limits.x0, Math.max((t.last[i] + 1 - t.first[i]) * 4, 60));
    glideTo(middle - width / 2, middle + width / 2, limits.y0, limits.y1);
    showMatches();
    const panel = painter.panels.find(one => one.plan === plan);
    if (panel) {
      state.kept = {plan, i, x: panel.x + panel.w / 2 + 30, y: panel.y + 20};
      showDetails();
    }
  }

  // ---- buttons ----

  function addButton(parent, text, press, attributes = {}) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(text);
    Object.entries(attributes).forEach(([key, value]) => button.setAttribute(key, value));
    button.addEventListener("click", press);
    parent.append(button);
    return button;
  }

  function setBuffer(b) {
    state.buffer = b;
    forget();
    [...$("buffers").children].forEach((button, k) => button.setAttribute("aria-selected", String(k === b)));
    buildPanels();
    setView(limits.x0, limits.x1, limits.y0, limits.y1);
    showStats();
  }

  function setMode(mode) {
    state.mode = mode;
    forget();
    [...$("modes").children].forEach((button, k) => button.setAttribute("aria-pressed", String(k === mode)));
    buildPanels();
  }

  function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    painter.readColours();
    showLegend();
    showDetails();
    redraw();
  }

  function forget() {
    state.kept = state.hover = null;
    showDetails();
  }

  function showLegend() {
    const legend = $("legend"), used = new Set();
    legend.replaceChildren();
    plans.filter(plan => plan.hasOps).forEach(plan => plan.tensors.family.forEach(family => used.add(family)));
    data.families.forEach((family, f) => {
      if (used.has(f)) {
        const swatch = document.createElement("i");
        swatch.style.background = painter.fills[f];
        const button = addButton(legend, swatch, () => {
          state.family = state.family === f ? -1 : f;
          [...legend.children].forEach(one => one.setAttribute("aria-pressed", String(one === button && state.family === f)));
          redraw();
        }, {"aria-pressed": String(state.family === f), title: "Show only " + family.name});
        button.append(family.name);
      }
    });
  }

  function showStats() {
    const stats = $("stats"), several = after.buffers.length > 1, b = state.buffer;
    const of = plan => several ? plan.buffers[b] || {peak: 0, bound: 0} : plan, now = of(after);
    stats.replaceChildren();
    const add = (name, text, kind = "") => {
      const group = document.createElement("div"), value = cell("dd", text);
      value.className = kind;
      group.append(cell("dt", name), value);
      stats.append(group);
    };
    add("tensors", after.tensors.n.toLocaleString("en-US"));
    add("peak", human(now.peak));
    add("bound", human(now.bound));
    now.peak === now.bound ? add("gap", "none, proven", "good") : add("gap", (100 * (now.peak / now.bound - 1)).toFixed(2) + "%");
    if (compared) {
      const was = of(plans[0]), change = was.peak > 0 ? 100 * (now.peak / was.peak - 1) : 0;
      add("before", human(was.peak));
      add("change", (change > 0 ? "+" : change < 0 ? "\u2212" : "") + Math.abs(change).toFixed(2) + "%", change < 0 ? "good" : change > 0 ? "bad" : "");
    }
    if (several) {
      add("all buffers", human(after.peak));
    }
  }

  // ---- pointer ----

  const pointers = new Map();
  let drag = null;

  function pinch(event) {
    const before = [...pointers.values()];
    pointers.set(event.pointerId, {clientX: event.clientX, clientY: event.clientY});
    const now = [...pointers.values()], gap = p => Math.max(Math.hypot(p[0].clientX - p[1].clientX, p[0].clientY - p[1].clientY), 1);
    const at = place({clientX: (now[0].clientX + now[1].clientX) / 2, clientY: (now[0].clientY + now[1].clientY) / 2}), factor = gap(before) / gap(now);
    zoom(factor, factor, at.step, at.address);
  }

  function listen() {
    const over = $("over");
    over.addEventListener("wheel", event => {
      const at = place(event), factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY || event.deltaX)) * 0.005);
      event.preventDefault();
      zoom(event.shiftKey && !event.ctrlKey ? 1 : factor, event.shiftKey || event.ctrlKey ? factor : 1, at.step, at.address);
      hoverAt(event);
    }, {passive: false});
    over.addEventListener("pointerdown", event => {
      over.setPointerCapture(event.pointerId);
      pointers.set(event.pointerId, {clientX: event.clientX, clientY: event.clientY});
      drag = {x: event.clientX, y: event.clientY, moved: false};
      over.focus({preventScroll: true});
    });
    over.addEventListener("pointermove", event => {
      if (pointers.size === 2) {
        pinch(event);
      } else if (drag && pointers.has(event.pointerId)) {
        const panel = place(event).panel, dx = event.clientX - drag.x, dy = event.clientY - drag.y;
        drag.moved = drag.moved || Math.hypot(dx, dy) > 3;
        if (drag.moved) {
          over.classList.add("dragging");
          pan(-dx / panel.w, dy / panel.h);
          drag.x = event.clientX;
          drag.y = event.clientY;
        }
      } else {
        hoverAt(event);
      }
    });
    const release = event => {
      pointers.delete(event.pointerId);
      over.classList.remove("dragging");
      if (drag && !drag.moved && event.type === "pointerup") {
        hoverAt(event);
        state.kept = state.kept && (!state.hover || state.hover.i === state.kept.i && state.hover.plan === state.kept.plan) ? null : state.hover;
        showDetails();
        redrawOver();
      }
      drag = null;
    };
    over.addEventListener("pointerup", release);
    over.addEventListener("pointercancel", release);
    over.addEventListener("pointerleave", () => {
      state.hover = state.step = null;
      showHint();
      showDetails();
      redrawOver();
    });
    over.addEventListener("dblclick", fit);
    $("search").addEventListener("input", event => search(event.target.value));
    $("search").addEventListener("keydown", event => {
      if (event.key === "Enter") {
        goToMatch(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        event.target.value = "";
        search("");
        forget();
        $("over").focus();
      }
    });
    $("zoom-in").addEventListener("click", () => zoom(0.6, 1));
    $("zoom-out").addEventListener("click", () => zoom(1 / 0.6, 1 / 0.6));
    $("fit").addEventListener("click", fit);
    $("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
    $("help-button").addEventListener("click", toggleHelp);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", event => setTheme(event.matches ? "dark" : "light"));
    document.addEventListener("keydown", key);
    new ResizeObserver(resize).observe(document.querySelector("main"));
  }

  function toggleHelp() {
    $("help").hidden = !$("help").hidden;
    $("help-button").setAttribute("aria-expanded", String(!$("help").hidden));
  }

  function key(event) {
    if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    }
    const n = after.buffers.length;
    const actions = {
      "ArrowLeft": () => pan(-0.15, 0), "ArrowRight": () => pan(0.15, 0), "ArrowUp": () => pan(0, 0.15), "ArrowDown": () => pan(0, -0.15),
      "+": () => event.shiftKey && event.code !== "Equal" ? zoom(1, 0.75) : zoom(0.75, 1), "=": () => zoom(0.75, 1), "-": () => zoom(1 / 0.75, 1), "_": () => zoom(1, 1 / 0.75), "*": () => zoom(1, 0.75),
      "0": fit, "Home": fit, "/": () => $("search").focus(), "n": () => goToMatch(1), "N": () => goToMatch(-1), "t": () => $("theme").click(), "?": toggleHelp,
      "[": () => setBuffer((state.buffer + n - 1) % n), "]": () => setBuffer((state.buffer + 1) % n),
      "1": () => compared && setMode(0), "2": () => compared && setMode(1), "3": () => compared && setMode(2),
      "Escape": () => { forget(); $("help").hidden = true; redrawOver(); },
    };
    if (actions[event.key]) {
      event.preventDefault();
      actions[event.key]();
    }
  }

  // ---- start ----

  $("title").append(after.title);
  if (compared) {
    $("title").append(" ", cell("small", "compared with " + plans[0].title));
    ["Both", "Before", "After"].forEach((name, mode) => addButton($("modes"), name, () => setMode(mode), {"aria-pressed": String(mode === state.mode)}));
  }
  if (after.buffers.length > 1) {
    after.buffers.forEach((_, b) => addButton($("buffers"), bufferName(after, b) + " \u00b7 " + human(after.buffers[b].peak), () => setBuffer(b), {role: "tab", "aria-selected": String(b === 0)}));
  }
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  painter.readColours();
  showLegend();
  showStats();
  showHint();
  if (after.buffers.length > 0) {
    listen();
    buildPanels();
    setView(limits.x0, limits.x1, limits.y0, limits.y1);
  } else {
    $("status").textContent = "There is nothing to draw: the plan has no items.";
  }

  // For tests: the position of a tensor on the screen, and the time of drawing.
  window.berthMap = {
    plans, view, state, painter, zoom, fit, setView,
    locate(index, name) {
      const panel = painter.panels.find(one => one.plan.index === index), i = plans[index].tensors.name.indexOf(name);
      const box = painter.box(panel, view, i), origin = $("over").getBoundingClientRect();
      return {x: origin.left + box.x + box.w / 2, y: origin.top + box.y + box.h / 2, w: box.w, h: box.h};
    },
  };
})();
