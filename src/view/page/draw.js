"use strict";
// draw.js: draws the map. A panel shows one buffer of a plan. All panels share one view: steps x0 to x1, addresses y0 to y1.
// Only the visible part is drawn. Highlights at the pointer are on a second canvas, so that moving the pointer does not redraw the map.

const MARGIN = {left: 84, right: 16, top: 28, bottom: 24, live: 46, gap: 12};

class Panel {
  constructor(plan, buffer, caption) {
    Object.assign(this, {plan, buffer, caption, x: 0, y: 0, w: 0, h: 0});
  }

  place(x, y, w, h) {
    Object.assign(this, {x, y, w, h});
  }

  // The top of the curve of live bytes.
  get liveTop() {
    return this.y + this.h + MARGIN.gap;
  }
}

class Painter {
  constructor(canvas, over, families) {
    Object.assign(this, {canvas, over, families, panels: [], draws: 0, lastMs: 0});
    this.context = canvas.getContext("2d", {alpha: false});
    this.overContext = over.getContext("2d");
  }

  readColours() {
    const style = getComputedStyle(document.documentElement), get = name => style.getPropertyValue("--" + name).trim();
    this.colours = {};
    for (const name of ["ground", "grid", "line", "ink", "soft", "accent", "peak", "bound", "live", "label"]) {
      this.colours[name] = get(name);
    }
    const dark = document.documentElement.dataset.theme === "dark";
    this.fills = this.families.map(family => dark ? family.dark : family.light);
    this.font = "11px " + getComputedStyle(document.body).fontFamily;
    this.hatch = this.hatchOf(this.colours.ground);
  }

  // Returns a pattern of diagonal lines, which marks recomputed and spilled values.
  hatchOf(colour) {
    const tile = document.createElement("canvas"), c = tile.getContext("2d");
    tile.width = tile.height = 6;
    c.strokeStyle = colour;
    c.globalAlpha = 0.55;
    c.lineWidth = 1.5;
    c.beginPath();
    for (const x of [-6, 0, 6]) {
      c.moveTo(x - 1, 7);
      c.lineTo(x + 7, -1);
    }
    c.stroke();
    return this.context.createPattern(tile, "repeat");
  }

  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this, {width, height});
    for (const [canvas, context] of [[this.canvas, this.context], [this.over, this.overContext]]) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const n = this.panels.length, each = height / n;
    this.panels.forEach((panel, i) => panel.place(MARGIN.left, i * each + MARGIN.top, Math.max(width - MARGIN.left - MARGIN.right, 40),
      Math.max(each - MARGIN.top - MARGIN.bottom - MARGIN.live - MARGIN.gap, 40)));
  }

  stepX(panel, view, step) {
    return panel.x + (step - view.x0) / (view.x1 - view.x0) * panel.w;
  }

  addressY(panel, view, address) {
    return panel.y + panel.h - (address - view.y0) / (view.y1 - view.y0) * panel.h;
  }

  panelAt(y) {
    return this.panels.find(panel => y < panel.y + panel.h + MARGIN.gap + MARGIN.live + MARGIN.bottom) || this.panels[this.panels.length - 1];
  }

  // Returns the rectangle of tensor i on the canvas, clipped to the panel.
  box(panel, view, i) {
    const {tensors: t, items} = panel.plan, item = t.item[i];
    const x0 = Math.max(this.stepX(panel, view, t.first[i]), panel.x), x1 = Math.min(this.stepX(panel, view, t.last[i] + 1), panel.x + panel.w);
    const y0 = Math.max(this.addressY(panel, view, items.at[item] + items.size[item]), panel.y);
    const y1 = Math.min(this.addressY(panel, view, items.at[item]), panel.y + panel.h);
    return {x: x0, y: y0, w: Math.max(x1 - x0, 1), h: Math.max(y1 - y0, 1), seen: x1 > x0 - 1 && y1 > y0 - 1 && x0 <= panel.x + panel.w && y0 <= panel.y + panel.h};
  }

  // ---- the map ----

  draw(view, shown) {
    const start = performance.now(), c = this.context;
    c.fillStyle = this.colours.ground;
    c.fillRect(0, 0, this.width, this.height);
    c.font = this.font;
    for (const panel of this.panels) {
      this.drawGrid(panel, view);
      c.save();
      c.beginPath();
      c.rect(panel.x, panel.y, panel.w, panel.h);
      c.clip();
      this.drawTensors(panel, view, shown);
      c.restore();
      this.drawLines(panel, view);
      this.drawLive(panel, view);
    }
    this.draws++;
    this.lastMs = performance.now() - start;
  }

  drawGrid(panel, view) {
    const c = this.context, span = view.y1 - view.y0, unit = unitOf(view.y1);
    let step = 1;
    while (span / step > Math.max(panel.h / 56, 2)) {
      step *= 2;
    }
    let digits = 0; // decimals that the step needs, so that no label is rounded
    while (digits < 4 && !Number.isInteger(step / 1024 ** unit * 10 ** digits)) {
      digits++;
    }
    c.strokeStyle = this.colours.grid;
    c.fillStyle = this.colours.soft;
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.beginPath();
    for (let k = 0, from = Math.ceil(view.y0 / step) * step; k < 200 && from + k * step <= view.y1; k++) {
      const a = from + k * step; // not computed by repeated addition: adding a small step to a very large address may change nothing
      const y = Math.round(this.addressY(panel, view, a)) + 0.5;
      c.moveTo(panel.x - 4, y);
      c.lineTo(panel.x + panel.w, y);
      c.fillText(a === 0 ? "0" : human(a, unit, digits), panel.x - 8, y);
    }
    const end = panel.x + panel.w - c.measureText("step").width - 8; // right end of the numbers
    const tick = this.niceStep((view.x1 - view.x0), Math.max(panel.w / 90, 2)), bottom = panel.liveTop + MARGIN.live;
    c.textAlign = "center";
    c.textBaseline = "top";
    for (let n = 0, from = Math.ceil(view.x0 / tick) * tick; n < 200 && from + n * tick <= view.x1; n++) {
      const k = from + n * tick;
      const x = Math.round(this.stepX(panel, view, k)) + 0.5;
      c.moveTo(x, panel.y);
      c.lineTo(x, bottom + 4);
      if (x + c.measureText(String(k)).width / 2 < end) {
        c.fillText(String(k), x, bottom + 7);
      }
    }
    c.stroke();
    c.textAlign = "right";
    c.fillText("step", panel.x + panel.w, bottom + 7);
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.fillText("address", 10, panel.y - 12);
    c.fillStyle = this.colours.ink;
    c.font = "600 " + this.font;
    c.fillText(this.shorten(panel.caption, panel.w), panel.x, panel.y - 12);
    c.font = this.font;
  }

  // Shortens a text to fit. The middle is left out, because both ends help to recognise a name.
  shorten(text, width) {
    const c = this.context;
    let n = text.length;
    for (let cut = text; ; n--) {
      if (c.measureText(cut).width <= width || n < 4) {
        return cut;
      }
      cut = text.slice(0, Math.ceil(n / 2)) + "\u2026" + text.slice(text.length - Math.floor(n / 2));
    }
  }

  niceStep(span, most) {
    for (let unit = 1; ; unit *= 10) {
      for (const factor of [1, 2, 5]) {
        if (span / (unit * factor) <= most) {
          return unit * factor;
        }
      }
    }
  }

  // shown(plan, i): whether tensor i matches the search; other tensors are drawn faint. null: all match.
  drawTensors(panel, view, shown) {
    const c = this.context, plan = panel.plan, t = plan.tensors, {at, size} = plan.items, labels = [], again = [];
    const perStep = panel.w / (view.x1 - view.x0), perByte = panel.h / (view.y1 - view.y0), bottom = panel.y + panel.h;
    let colour = -1, faint = false;
    c.globalAlpha = 1;
    for (const i of plan.order[panel.buffer]) {
      const item = t.item[i], low = at[item], high = low + size[item];
      if (t.last[i] + 1 <= view.x0 || t.first[i] >= view.x1 || high <= view.y0 || low >= view.y1) {
        continue;
      }
      if (plan.colour[i] !== colour) {
        colour = plan.colour[i];
        c.fillStyle = this.fills[colour];
      }
      const hidden = shown !== null && !shown(plan, i);
      if (hidden !== faint) {
        faint = hidden;
        c.globalAlpha = faint ? 0.13 : 1;
      }
      const x0 = Math.round(Math.max(panel.x + (t.first[i] - view.x0) * perStep, panel.x - 2));
      const x1 = Math.round(Math.min(panel.x + (t.last[i] + 1 - view.x0) * perStep, panel.x + panel.w + 2));
      const y0 = Math.round(Math.max(bottom - (high - view.y0) * perByte, panel.y - 2));
      const y1 = Math.round(Math.min(bottom - (low - view.y0) * perByte, bottom + 2));
      const gap = x1 - x0 >= 5 && y1 - y0 >= 4 ? 1 : 0; // a gap between neighbours if there is space
      c.fillRect(x0, y0 + gap, Math.max(x1 - x0 - gap, 1), Math.max(y1 - y0 - gap, 1));
      if (!hidden && y1 - y0 >= 14 && x1 - x0 >= 26 || !hidden && x1 - x0 >= 15 && y1 - y0 >= 40) {
        labels.push([t.name[i], x0, y0, x1 - x0, y1 - y0]);
      }
      if (!hidden && (plan.again[i] || plan.moved[i])) {
        again.push([x0, y0 + gap, Math.max(x1 - x0 - gap, 1), Math.max(y1 - y0 - gap, 1)]);
      }
    }
    c.globalAlpha = 1;
    c.fillStyle = this.hatch;
    again.forEach(box => c.fillRect(...box));
    this.hatched = again.length;
    this.drawLabels(labels);
  }

  drawLabels(labels) {
    const c = this.context;
    c.fillStyle = this.colours.label;
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const [name, x, y, w, h] of labels) {
      const length = name.length * 6.4 + 6;
      if (h >= 14 && w >= length) {
        c.fillText(name, x + w / 2, y + h / 2);
      } else if (w >= 15 && h >= length) {
        c.save();
        c.translate(x + w / 2, y + h / 2);
        c.rotate(-Math.PI / 2);
        c.fillText(name, 0, 0);
        c.restore();
      }
    }
  }

  drawLines(panel, view) {
    const {peak, bound} = panel.plan.buffers[panel.buffer], same = peak === bound;
    this.drawLine(panel, view, peak, this.colours.peak, [], "peak " + human(peak) + (same ? " = bound: proven optimal" : ""), -7);
    if (!same) {
      this.drawLine(panel, view, bound, this.colours.bound, [6, 4], "bound " + human(bound), 9);
    }
  }

  drawLine(panel, view, address, colour, dash, label, shift) {
    const c = this.context, y = Math.round(this.addressY(panel, view, address)) + 0.5;
    if (address < view.y0 || address > view.y1) {
      return;
    }
    c.save();
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = 1.5;
    c.setLineDash(dash);
    c.beginPath();
    c.moveTo(panel.x, y);
    c.lineTo(panel.x + panel.w, y);
    c.stroke();
    c.font = "600 " + this.font;
    c.textAlign = "right";
    c.textBaseline = "middle";
    c.setLineDash([]);
    c.strokeStyle = this.colours.ground; // an outline, so that the text is readable on any rectangle
    c.lineWidth = 3;
    c.lineJoin = "round";
    c.strokeText(label, panel.x + panel.w - 6, y + shift);
    c.fillText(label, panel.x + panel.w - 6, y + shift);
    c.restore();
  }

  // Draws the curve of live bytes. Each column of pixels shows the maximum over the steps in it, so no peak is lost if there are
  // more steps than pixels.
  drawLive(panel, view) {
    const c = this.context, live = panel.plan.live[panel.buffer], top = panel.liveTop, height = MARGIN.live, columns = new Float64Array(Math.ceil(panel.w) + 1);
    for (let k = 0; k + 1 < live.steps.length; k++) {
      if (live.steps[k + 1] <= view.x0 || live.steps[k] >= view.x1) {
        continue;
      }
      const x0 = Math.max(Math.floor(this.stepX(panel, view, live.steps[k]) - panel.x), 0);
      const x1 = Math.min(Math.max(Math.ceil(this.stepX(panel, view, live.steps[k + 1]) - panel.x), x0 + 1), columns.length);
      for (let x = x0; x < x1; x++) {
        columns[x] = Math.max(columns[x], live.bytes[k]);
      }
    }
    c.beginPath();
    c.moveTo(panel.x, top + height);
    for (let x = 0; x < columns.length; x++) {
      const y = top + height - columns[x] / (live.most || 1) * height;
      c.lineTo(panel.x + Math.min(x, panel.w), y);
      c.lineTo(panel.x + Math.min(x + 1, panel.w), y);
    }
    c.lineTo(panel.x + panel.w, top + height);
    c.closePath();
    c.globalAlpha = 0.28;
    c.fillStyle = this.colours.live;
    c.fill();
    c.globalAlpha = 1;
    c.strokeStyle = this.colours.live;
    c.lineWidth = 1;
    c.stroke();
    c.fillStyle = this.colours.soft;
    c.textAlign = "right";
    c.textBaseline = "top";
    c.fillText(human(live.most), panel.x - 8, top - 2);
    c.textBaseline = "bottom";
    c.fillText("alive", panel.x - 8, top + height + 1);
  }

  // ---- highlights at the pointer ----

  drawOver(view, mark) {
    const c = this.overContext;
    c.clearRect(0, 0, this.width, this.height);
    for (const panel of this.panels) {
      if (mark.step !== null && mark.step >= view.x0 && mark.step <= view.x1) {
        c.strokeStyle = this.colours.soft;
        c.globalAlpha = 0.5;
        c.lineWidth = 1;
        const x = Math.round(this.stepX(panel, view, mark.step)) + 0.5;
        c.beginPath();
        c.moveTo(x, panel.y);
        c.lineTo(x, panel.liveTop + MARGIN.live);
        c.stroke();
        c.globalAlpha = 1;
      }
      for (const [i, style] of mark.boxes(panel)) {
        this.drawBox(panel, view, i, style);
      }
    }
  }

  drawBox(panel, view, i, style) {
    const c = this.overContext, box = this.box(panel, view, i);
    if (!box.seen) {
      return;
    }
    const isThin = style !== "chosen" && style !== "match";
    const colour = {below: this.colours.accent, from: this.colours.live, to: this.colours.peak}[style] || this.colours.ink;
    c.setLineDash(style === "below" ? [4, 3] : []);
    c.lineWidth = isThin ? 4 : 4.5;
    c.strokeStyle = this.colours.ground;
    c.strokeRect(box.x, box.y, box.w, box.h);
    c.lineWidth = style === "below" ? 1.5 : 2;
    c.strokeStyle = colour;
    c.strokeRect(box.x, box.y, box.w, box.h);
    c.setLineDash([]);
  }
}
