// The timeline explorer: spans on a canvas, with hover, pan and zoom. canvas.py sends them as
// columns; model.py says what these mean. Times are in ticks until they are shown.

const LEFT = 104, AXIS = 24; // pixels: names left of the rows, times above them
const HELP = "Point at a bar for its numbers. Drag or ← → to move; +, − or the wheel (after a click) " +
  "to zoom; Home for all; ↑ ↓ for the bars in the middle of the rows.";
const TYPES = { f8: Float64Array, i4: Int32Array, u4: Uint32Array, u1: Uint8Array };

const ms = (ns, digits = 4) => `${Number((ns / 1e6).toPrecision(digits))} ms`;

function size(bytes) {
  const power = bytes < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

async function unpack(model) {
  const picture = { ...model.get("picture") }, packed = new Blob([model.get("spans")]);
  const stream = packed.stream().pipeThrough(new DecompressionStream("deflate"));
  const buffer = await new Response(stream).arrayBuffer();
  let at = 0;
  for (const [name, type] of picture.columns) {
    picture[name] = new TYPES[type](buffer, at, picture.count);
    at += picture[name].byteLength;
  }
  return picture;
}

function hatch(color, paper) {
  const tile = new OffscreenCanvas(6, 6), pen = tile.getContext("2d");
  Object.assign(pen, { fillStyle: paper, strokeStyle: color });
  pen.fillRect(0, 0, 6, 6);
  for (const x of [-6, 0, 6]) { pen.moveTo(x, 6); pen.lineTo(x + 6, 0); }
  pen.stroke();
  return pen.createPattern(tile, "repeat");
}

/** The first index in [low, high) of which `is` holds, as it does of all after it; or high. */
function search(low, high, is) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

class Explorer {
  constructor(picture, canvas, said) {
    Object.assign(this, picture, { canvas, said, row: 0, picked: -1, view: [0, picture.length] });
    this.pen = canvas.getContext("2d");
    this.fills = this.kinds.map((kind) => this.face[kind] ?? hatch(this.ink.exposed, this.ink.paper));
    this.tell(-1);
  }

  get scale() { return (this.wide - LEFT) / (this.view[1] - this.view[0]); } // pixels a tick
  x(tick) { return LEFT + (tick - this.view[0]) * this.scale; }
  tick(x) { return this.view[0] + (x - LEFT) / this.scale; }

  look(from, to) { // at these ticks, as far as there are any
    const [first, last] = this.extent, least = Math.min(100, last - first);
    const long = Math.min(Math.max(to - from, least), last - first);
    const start = Math.min(Math.max((from + to - long) / 2, first), last - long);
    this.view = [start, start + long];
    this.later();
    this.onlook?.(...this.view.map((tick) => tick * this.tick_ns)); // for linked pictures
  }

  show(from, to) { // at these ns, as a linked picture does
    this.view = [from / this.tick_ns, to / this.tick_ns];
    this.later();
  }

  zoom(factor, x = (LEFT + this.wide) / 2) {
    const at = this.tick(x), [from, to] = this.view;
    this.look(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(pixels) { this.look(...this.view.map((tick) => tick + pixels / this.scale)); }

  later() { this.frame ??= requestAnimationFrame(() => this.draw()); } // once for many events

  draw() {
    const { pen, canvas } = this, dots = window.devicePixelRatio || 1;
    this.frame = undefined;
    if (!canvas.clientWidth) return; // hidden for a moment, as while the theme changes: keep it
    this.wide = canvas.clientWidth;
    canvas.width = this.wide * dots; // which also clears it
    canvas.height = (this.height + AXIS) * dots;
    pen.scale(dots, dots);
    pen.textBaseline = "middle";
    for (const row of this.rows) {
      const middle = AXIS + row.top + row.height / 2;
      this.write(row.title, 6, middle, this.ink.text, "bold 12px sans-serif");
      this.write(row.name, LEFT - 54, middle, this.ink.grey);
      pen.fillStyle = this.ink.band;
      pen.fillRect(LEFT, AXIS + row.top, this.wide - LEFT, row.height);
    }
    pen.rect(LEFT, 0, this.wide - LEFT, this.height + AXIS);
    pen.clip();
    this.axis();
    for (const row of this.rows) this.bars(row, AXIS + row.top);
  }

  axis() { // a line and its time at every 1, 2 or 5 of some power of ten
    const [from, to] = this.view.map((tick) => tick * this.tick_ns);
    const power = 10 ** Math.floor(Math.log10((to - from) / 7));
    const step = power * [1, 2, 5, 10].find((digit) => digit * power >= (to - from) / 7);
    for (let n = Math.ceil(from / step); n * step <= to; n++) {
      const x = this.x((n * step) / this.tick_ns);
      this.pen.fillStyle = this.ink.grid;
      this.pen.fillRect(x, AXIS - 6, 1, this.height + 6);
      this.write(ms(n * step, 9), x + 3, 10, this.ink.grey);
    }
  }

  write(text, x, y, color, font = "11px sans-serif") {
    Object.assign(this.pen, { font, fillStyle: color });
    this.pen.fillText(text, x, y);
  }

  bars(row, y) { // those under a pixel share one bar, of the kind that fills most of their pixel
    let pixel = -1;
    const { start, end, kind, scale } = this, filled = this.kinds.map(() => 0);
    const [from, to] = this.view;
    const flush = () => {
      this.pen.fillStyle = this.fills[filled.indexOf(Math.max(...filled))];
      if (pixel >= 0) this.pen.fillRect(pixel, y, 1, row.height);
      filled.fill(0);
      pixel = -1;
    };
    const begin = search(row.first, row.last, (i) => this.reach[i] >= from);
    for (let i = begin; i < row.last && start[i] < to; i++) {
      const x = LEFT + (start[i] - from) * scale, wide = (end[i] - start[i]) * scale;
      if (wide >= 1 || Math.floor(x) !== pixel) flush();
      if (this.over[i] > end[i]) this.thin(x + wide, y, (this.over[i] - end[i]) * scale, row.height);
      if (wide >= 1) {
        this.bar(i, x, y, wide, row.height);
      } else {
        pixel = Math.floor(x);
        filled[kind[i]] += wide + 1e-9;
      }
    }
    flush();
  }

  thin(x, y, wide, high) { // done, and not yet collected
    this.pen.fillStyle = this.face.done;
    this.pen.fillRect(x, y + high * (1 - this.thinness) / 2, wide, high * this.thinness);
  }

  bar(i, x, y, wide, high) {
    const { pen } = this, kind = this.kinds[this.kind[i]], edge = wide > 4 ? 1 : 0;
    const waits = (this.ready[i] - this.start[i]) * this.scale;
    pen.fillStyle = this.fills[this.kind[i]];
    pen.fillRect(x, y, wide - edge, high);
    pen.fillStyle = this.face.waiting;
    pen.fillRect(x, y, Math.min(waits, wide - edge), high);
    Object.assign(pen, { strokeStyle: this.ink.text, lineWidth: 4 });
    if (i === this.picked) pen.strokeRect(x, y, wide, high);
    const left = Math.max(x, LEFT) + 4, room = Math.min(x + wide, this.wide) - left - 4;
    if (room < 9 || high < 11 || kind === "exposed") return;
    const full = this.names[this.name[i]], short = kind === "moving" ? full.split(" ").at(-1) : full;
    const text = [full, short].find((text) => pen.measureText(text).width <= room);
    if (!text) return;
    const on_waiting = x + waits >= left + pen.measureText(text).width; // brown is for pale ground only
    this.write(text, left, y + high / 2 + 0.5, this.label[on_waiting ? "waiting" : kind]);
  }

  pick(row, x) { // the innermost span at this place of the row; if small, near it
    const at = this.tick(x), near = 2 / this.scale;
    let i = search(row.first, row.last, (i) => this.start[i] > at + near) - 1;
    while (i >= row.first && this.reach[i] >= at - near && this.end[i] < at - near) i--;
    this.tell(i >= row.first && this.end[i] >= at - near ? i : -1, row);
  }

  point(x, y) {
    const row = this.rows.find(({ top, height }) => y - AXIS >= top && y - AXIS < top + height);
    if (row && x >= LEFT) this.pick(row, x); else this.tell(-1);
  }

  step(by) { // through the rows
    this.row = Math.min(Math.max(this.row + by, 0), this.rows.length - 1);
    if (this.row >= 0) this.pick(this.rows[this.row], (LEFT + this.wide) / 2);
  }

  tell(i, row) {
    if (i !== this.picked) this.later();
    this.picked = i;
    const [from, to, ready, over] = ["start", "end", "ready", "over"].map(
      (name) => this[name][i] * this.tick_ns);
    this.said.textContent = i < 0 ? HELP : [
      this.names[this.name[i]], `rank ${row.rank}`, `${ms(to - from)}, from ${ms(from)} to ${ms(to)}`,
      this.nbytes[i] && size(this.nbytes[i]), this.peer[i] >= 0 && `peer: rank ${this.peer[i]}`,
      ready > from && `waited ${ms(ready - from)} for a peer`,
      over > to && `collected ${ms(over - to)} after it was done`,
    ].filter(Boolean).join("  ·  ");
  }
}

function listen(canvas, explorer) {
  const part = (share) => share * (explorer.wide - LEFT);
  const keys = { "+": () => explorer.zoom(0.5), "=": () => explorer.zoom(0.5),
    "-": () => explorer.zoom(2), Home: () => explorer.look(...explorer.extent),
    ArrowLeft: () => explorer.pan(part(-0.2)), ArrowRight: () => explorer.pan(part(0.2)),
    ArrowUp: () => explorer.step(-1), ArrowDown: () => explorer.step(1) };
  canvas.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  };
  canvas.onwheel = (event) => { // before a click, the page scrolls
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    explorer.zoom(1.0015 ** event.deltaY, event.offsetX);
  };
  canvas.onpointerdown = (event) => canvas.setPointerCapture(event.pointerId);
  canvas.onpointermove = (event) => {
    if (event.buttons) explorer.pan(-event.movementX);
    else explorer.point(event.offsetX, event.offsetY);
  };
  canvas.onpointerleave = () => explorer.tell(-1);
  canvas.onfocus = () => { canvas.style.outline = `2px solid ${explorer.face.backward}`; };
  canvas.onblur = () => { canvas.style.outline = "none"; };
}

async function render({ model, el }) {
  const picture = await unpack(model);
  const canvas = document.createElement("canvas"), said = document.createElement("div");
  Object.assign(canvas, { tabIndex: 0, role: "application", ariaLabel: `${picture.title}. ${HELP}` });
  canvas.style = `width: 100%; height: ${picture.height + AXIS}px; background: ${picture.ink.paper}; ` +
    "display: block; outline-offset: -2px; touch-action: pan-y";
  Object.assign(said, { role: "status", style: "min-height: 2.6em; font: 13px sans-serif" });
  el.dataset.lmSuppressShortcuts = "true"; // JupyterLab would take the arrow keys
  el.append(said, canvas);
  const explorer = new Explorer(picture, canvas, said);
  el.explorer = explorer;
  listen(canvas, explorer);
  const observer = new ResizeObserver(() => explorer.later());
  observer.observe(canvas);
  return () => observer.disconnect();
}

export default { render };
