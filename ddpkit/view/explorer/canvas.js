// The timeline explorer: spans on a canvas, with hover, pan and zoom. canvas.py sends the spans as
// columns, which model.py defines. Times are in ticks until they are shown as text. The canvas is as
// high as its box. The box scrolls, and the canvas draws only the rows in sight, for any number of ranks.

const LEFT = 104, AXIS = 24; // pixels: names left of the rows, times above them
const EDGE = 4, BETWEEN = 12, BOX = 560; // pixels: above the rows, between ranks, the highest canvas
const CELL = 2; // pixels: the width of a cell; bars shorter than a cell share cells
const BLOCK = 64; // spans of a block: a block's sums are computed once, and drawn if it fits in a cell
const HELP = "Point at a bar or tap it for its numbers. Drag to move; +, − or the wheel (after a click), " +
  "or two fingers, to zoom; Home for all; ← → for the next bar, ↑ ↓ for the next row.";
const TYPES = { f8: Float64Array, i4: Int32Array, u4: Uint32Array, u1: Uint8Array };

const ms = (ns, digits = 4) => `${Number((ns / 1e6).toPrecision(digits))} ms`;

/** Return the text of a time at the axis, in a unit that suits lines `step` ns apart. */
function when(ns, step, longest) {
  const units = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];
  const [unit, size] = units.find(([, size]) => longest >= size && step >= size / 1000) ?? units[3];
  return `${Number((ns / size).toPrecision(9))} ${unit}`;
}

function size(bytes) {
  const power = bytes < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${Number((bytes / 1000 ** power).toPrecision(3))} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

/** Return the picture with its columns: the inverse of `SpanColumns.packed` in model.py. */
async function unpack(model) {
  const picture = { ...model.get("picture") }, packed = new Blob([model.get("spans")]);
  const stream = packed.stream().pipeThrough(new DecompressionStream("deflate"));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer()), n = picture.count;
  let at = 0;
  for (const [name, type] of picture.columns) {
    const column = new TYPES[type](n), wide = column.BYTES_PER_ELEMENT;
    const place = new Uint8Array(column.buffer);
    for (let byte = 0; byte < wide; byte++)
      for (let i = 0; i < n; i++) place[i * wide + byte] = bytes[at++];
    picture[name] = column;
  }
  const { start, end, over, ready } = picture, reach = picture.reach = new Int32Array(n);
  for (const { first, last } of picture.rows) {
    for (let i = first; i < last; i++) {
      if (i > first) start[i] += start[i - 1];
      end[i] += start[i];
      over[i] += end[i];
      ready[i] += start[i];
      reach[i] = i > first && reach[i - 1] > over[i] ? reach[i - 1] : over[i];
    }
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

/** Return the first index in [low, high) for which `is` is true, or high. From this index on, `is`
 * must stay true. */
function search(low, high, is) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle; else low = middle + 1;
  }
  return low;
}

class Explorer {
  constructor(picture, canvas, said, box, room) {
    Object.assign(this, picture, { canvas, said, box, room, picked: -1, view: [0, picture.length] });
    this.pen = canvas.getContext("2d");
    this.rows.forEach((row, number) => { row.number = number; });
    this.ink_in(this.ink);
    this.sum();
    this.fold(this.few.length > 0);
    this.tell(-1);
  }

  ink_in(ink) { // take the colours of a theme
    this.ink = ink;
    this.canvas.style.background = ink.paper;
    this.fills = this.kinds.map((kind) => this.face[kind] ?? hatch(ink.exposed, ink.paper));
  }

  fold(folded) { // show the ranks in `few`, or all ranks
    this.folded = folded;
    this.shown = this.rows.filter((row) => !folded || this.few.some(([rank]) => rank === row.rank));
    let y = EDGE, last;
    for (const row of this.shown) {
      const next = last && row === this.rows[last.number + 1]; // below `last` in model.py too
      if (last) y += next ? row.top - last.top - last.height : BETWEEN;
      row.y = y;
      y += row.height;
      last = row;
    }
    this.full = y + EDGE; // height of all shown rows
    this.high = Math.min(this.full + AXIS, BOX); // height of the canvas
    this.canvas.style.height = this.box.style.height = `${this.high}px`;
    this.room.style.height = `${this.full + AXIS - this.high}px`; // higher than the box, so that the box scrolls
    this.box.scrollTop = 0;
    this.later();
  }

  get scale() { return (this.wide - LEFT) / (this.view[1] - this.view[0]); } // pixels a tick
  x(tick) { return LEFT + (tick - this.view[0]) * this.scale; }
  tick(x) { return this.view[0] + (x - LEFT) / this.scale; }

  look(from, to) { // show these ticks, moved into the extent
    const [first, last] = this.extent, least = Math.min(100, last - first);
    const long = Math.min(Math.max(to - from, least), last - first);
    const start = Math.min(Math.max((from + to - long) / 2, first), last - long);
    this.view = [start, start + long];
    this.later();
    this.onlook?.(...this.view.map((tick) => tick * this.tick_ns)); // tells linked pictures
  }

  show(from, to) { // show these ns, without a word to linked pictures
    this.view = [from / this.tick_ns, to / this.tick_ns];
    this.later();
  }

  zoom(factor, x = (LEFT + this.wide) / 2) {
    const at = this.tick(x), [from, to] = this.view;
    this.look(at - (at - from) * factor, at + (to - at) * factor);
  }

  pan(pixels) { this.look(...this.view.map((tick) => tick + pixels / this.scale)); }

  later() { this.frame ??= requestAnimationFrame(() => this.draw()); } // draw once after many events

  draw() {
    const { pen, canvas } = this, dots = window.devicePixelRatio || 1;
    this.frame = undefined;
    if (!canvas.clientWidth) return; // hidden for a moment, such as while the theme changes: keep the drawing
    this.wide = canvas.clientWidth;
    canvas.width = this.wide * dots; // this also clears the canvas
    canvas.height = this.high * dots;
    pen.scale(dots, dots);
    pen.textBaseline = "middle";
    const down = AXIS - this.box.scrollTop;
    const rows = this.shown.filter(({ y, height }) => y + down + height > AXIS && y + down < this.high);
    pen.save();
    pen.rect(0, AXIS, this.wide, this.high - AXIS);
    pen.clip();
    for (const row of rows) {
      const middle = row.y + down + row.height / 2;
      this.write(row.title, 6, middle, this.ink.text, "bold 12px sans-serif");
      this.write(row.name, LEFT - 54, middle, this.ink.grey);
      pen.fillStyle = this.ink.band;
      pen.fillRect(LEFT, row.y + down, this.wide - LEFT, row.height);
    }
    pen.restore();
    this.axis();
    pen.rect(LEFT, AXIS, this.wide - LEFT, this.high - AXIS);
    pen.clip();
    for (const row of rows) this.bars(row, row.y + down);
  }

  axis() { // draw lines with their times; the distance is 1, 2 or 5 times a power of ten
    const [from, to] = this.view.map((tick) => tick * this.tick_ns);
    const power = 10 ** Math.floor(Math.log10((to - from) / 7));
    const step = power * [1, 2, 5, 10].find((digit) => digit * power >= (to - from) / 7);
    for (let n = Math.ceil(from / step); n * step <= to; n++) {
      const x = this.x((n * step) / this.tick_ns), text = when(n * step, step, Math.abs(to));
      this.pen.fillStyle = this.ink.grid;
      this.pen.fillRect(x, AXIS - 6, 1, this.high + 6 - AXIS);
      this.pen.font = "11px sans-serif";
      const wide = this.pen.measureText(text).width;
      this.write(text, Math.min(x + 3, this.wide - wide - 1), 12, this.ink.grey); // keeps the last text inside
    }
    const [first, last] = this.extent, inch = (this.wide - LEFT) / (last - first);
    this.pen.fillStyle = this.ink.grid; // the map: a bar for the whole extent, and on it the part in view
    this.pen.fillRect(LEFT, 0, this.wide - LEFT, 4);
    this.pen.fillStyle = this.ink.grey;
    const [a, b] = this.view;
    this.pen.fillRect(LEFT + (a - first) * inch, 0, Math.max(2, (b - a) * inch), 4);
  }

  write(text, x, y, color, font = "11px sans-serif") {
    Object.assign(this.pen, { font, fillStyle: color });
    this.pen.fillText(text, x, y);
  }

  bars(row, y) {
    const { start, end, over, reach, ready, kind, scale } = this, [from, to] = this.view;
    const cells = this.cells(), waiting = this.kinds.length, large = [];
    let i = search(row.first, row.last, (i) => reach[i] >= from);
    while (i < row.last && start[i] < to) {
      const next = i + BLOCK;
      if ((i - row.first) % BLOCK === 0 && next <= row.last) {
        if ((reach[next - 1] - start[i]) * scale < CELL) { // the whole block fits in a cell
          this.block(row, i, (start[i] + reach[next - 1]) / 2, cells);
          i = next;
          continue;
        }
      }
      const late = (over[i] - end[i]) * scale;
      if (late >= 1) this.thin(this.x(end[i]), y, late, row.height);
      if ((end[i] - start[i]) * scale >= CELL) large.push(i);
      else {
        if (ready[i] > start[i]) this.add(start[i], ready[i], waiting, cells);
        this.add(ready[i], end[i], kind[i], cells);
      }
      i++;
    }
    this.heap(cells, y, row.height);
    for (const i of large)
      this.bar(i, this.x(start[i]), y, (end[i] - start[i]) * scale, row.height);
  }

  sum() { // sum up the ticks of each kind, and of waiting, in each block of BLOCK spans of a row
    const kinds = this.kinds.length + 1;
    const count = this.rows.reduce((sum, { first, last }) => sum + Math.floor((last - first) / BLOCK), 0);
    const sums = this.sums = new Float64Array(count * kinds);
    let at = 0;
    for (const row of this.rows) {
      row.block = at;
      for (let i = row.first; i + BLOCK <= row.last; at += kinds)
        for (const end = i + BLOCK; i < end; i++) {
          sums[at + kinds - 1] += this.ready[i] - this.start[i];
          sums[at + this.kind[i]] += this.end[i] - this.ready[i];
        }
    }
  }

  block(row, i, middle, cells) {
    const kinds = this.kinds.length + 1, scale = this.scale / CELL;
    const cell = Math.floor((middle - this.view[0]) * scale) * kinds;
    const at = row.block + ((i - row.first) / BLOCK) * kinds;
    if (cell < 0) return;
    for (let kind = 0; kind < kinds; kind++) cells[cell + kind] += this.sums[at + kind] * scale;
  }

  cells() { // the share of each cell that each kind fills, at first 0; the last kind is waiting
    const count = (this.kinds.length + 1) * Math.ceil((this.wide - LEFT) / CELL + 1);
    if (this.filled?.length !== count) this.filled = new Float64Array(count);
    return this.filled.fill(0);
  }

  add(from, to, kind, cells) { // add a bar shorter than a cell to the one or two cells that it touches
    const kinds = this.kinds.length + 1, scale = this.scale / CELL;
    const a = (from - this.view[0]) * scale, b = (to - this.view[0]) * scale;
    const cell = Math.floor(a), next = Math.min(b, cell + 1);
    if (cell >= 0) cells[cell * kinds + kind] += next - a + 1e-3; // even an instant is visible
    if (b > next) cells[(cell + 1) * kinds + kind] += b - next;
  }

  heap(cells, y, high) { // draw each cell as layers, one for each kind; heights are the kinds' shares
    const kinds = this.kinds.length + 1, count = cells.length / kinds;
    const tops = new Float64Array(count).fill(y + high), units = new Float64Array(count);
    for (let cell = 0; cell < count; cell++) {
      let sum = 0;
      for (let kind = 0; kind < kinds; kind++) sum += cells[cell * kinds + kind];
      if (sum) units[cell] = Math.max(high, 2 / sum) / Math.max(1, sum); // at least 2 pixels
    }
    for (let kind = 0; kind < kinds; kind++) { // kinds outside, because a change of fillStyle is slow
      this.pen.fillStyle = this.fills[kind] ?? this.face.waiting;
      for (let cell = 0; cell < count; cell++) {
        const share = Math.min(cells[cell * kinds + kind] * units[cell], tops[cell] - y);
        if (share > 0) this.pen.fillRect(LEFT + cell * CELL, tops[cell] -= share, CELL, share);
      }
    }
  }

  thin(x, y, wide, high) { // draw the time in which an operation is done, and not yet collected
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
    const outline = this.ink.edge[kind];
    Object.assign(pen, { strokeStyle: outline, lineWidth: 1 });
    if (outline && edge) pen.strokeRect(x + 0.5, y + 0.5, wide - edge - 1, high - 1);
    Object.assign(pen, { strokeStyle: this.ink.text, lineWidth: 4 });
    if (i === this.picked) pen.strokeRect(x, y, wide, high);
    const left = Math.max(x, LEFT) + 4, room = Math.min(x + wide, this.wide) - left - 4;
    if (room < 9 || high < 11 || kind === "exposed") return;
    const full = this.names[this.name[i]], short = kind === "moving" ? full.split(" ").at(-1) : full;
    const text = [full, short].find((text) => pen.measureText(text).width <= room);
    if (!text) return;
    const on_waiting = x + waits >= left + pen.measureText(text).width; // brown text only on a pale ground
    this.write(text, left, y + high / 2 + 0.5, this.label[on_waiting ? "waiting" : kind]);
  }

  pick(row, x) { // pick the innermost span at this place of the row, or within 2 pixels of the place
    const at = this.tick(x), near = 2 / this.scale;
    let i = search(row.first, row.last, (i) => this.start[i] > at + near) - 1;
    while (i >= row.first && this.reach[i] >= at - near && this.end[i] < at - near) i--;
    this.tell(i >= row.first && this.end[i] >= at - near ? i : -1, row);
  }

  point(x, y) {
    const at = y - AXIS + this.box.scrollTop;
    const row = y >= AXIS && this.shown.find(({ y, height }) => at >= y && at < y + height);
    if (row && x >= LEFT) this.pick(row, x); else this.tell(-1);
  }

  nearest(row, at) { // return the span of a row that is nearest to this tick
    let i = search(row.first, row.last, (i) => this.start[i] > at) - 1;
    while (i > row.first && this.end[i] < at && this.reach[i] >= at) i--;
    const next = i + 1 < row.last && this.start[i + 1] - at < at - this.end[i];
    return i < row.first || next ? i + 1 : i;
  }

  down(by) { // go down by this many rows; if no row was picked, to the first row in sight
    const at = this.shown.indexOf(this.row);
    const first = this.shown.findIndex(({ y }) => y >= this.box.scrollTop);
    const row = this.shown[at < 0 ? first : Math.min(Math.max(at + by, 0), this.shown.length - 1)];
    if (!row) return;
    const middle = this.picked < 0 ? (this.view[0] + this.view[1]) / 2
      : (this.start[this.picked] + this.end[this.picked]) / 2;
    this.reveal(this.nearest(row, Math.min(Math.max(middle, this.view[0]), this.view[1])), row);
  }

  along(by) { // go to the next bar of the row, or to the one before
    if (this.picked < 0) return this.down(0);
    const i = this.picked + by;
    if (i >= this.row.first && i < this.row.last) this.reveal(i, this.row);
  }

  reveal(i, row) { // pick a span, and move so that it is in sight
    if (!this.shown.includes(row)) this.onfold(false);
    const { box } = this, low = row.y + row.height + AXIS + EDGE - this.high;
    box.scrollTop = Math.min(Math.max(box.scrollTop, low), row.y - EDGE);
    const [from, to] = this.view, long = to - from;
    if (this.end[i] < from || this.start[i] > to) {
      const middle = (this.start[i] + this.end[i]) / 2;
      this.look(middle - long / 2, middle + long / 2);
    }
    this.tell(i, row);
  }

  step(by) { // go to the next step, or to the one before
    const [from, to] = this.view, near = (to - from) / 1000;
    const later = ([start]) => start > from + near, earlier = ([start]) => start < from - near;
    const step = by > 0 ? this.steps.find(later) : this.steps.findLast(earlier);
    if (from <= this.extent[0] && to >= this.extent[1] && by > 0) this.look(...this.steps[0]);
    else if (step) this.look(...step);
  }

  find(text) { // go to a rank by its number, or to the next bar with this text in its name
    const rank = /^(?:rank )?(\d+)$/i.exec(text.trim())?.[1], { rows } = this;
    const row = rank && rows.find((row) => row.rank === Number(rank));
    if (row) return this.reveal(this.nearest(row, (this.view[0] + this.view[1]) / 2), row);
    const like = this.names.map((name) => name.toLowerCase().includes(text.trim().toLowerCase()));
    const count = this.name.length;
    for (let n = 1; n <= count; n++) {
      const i = (this.picked + n) % count;
      if (like[this.name[i]]) return this.reveal(i, rows.find(({ last }) => i < last));
    }
    this.said.textContent = `There is no rank and no bar "${text}".`;
  }

  tell(i, row) {
    if (i !== this.picked) this.later();
    this.picked = i;
    if (row) this.row = row;
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
