// The controls of the explorer: mouse, touch, keys, buttons and a search field. look.py appends this
// file to canvas.js.

function listen(canvas, explorer) {
  const part = (share) => share * (explorer.wide - LEFT);
  const keys = { "+": () => explorer.zoom(0.5), "=": () => explorer.zoom(0.5),
    "-": () => explorer.zoom(2), Home: () => explorer.look(...explorer.extent),
    ArrowLeft: () => explorer.along(-1), ArrowRight: () => explorer.along(1),
    ArrowUp: () => explorer.down(-1), ArrowDown: () => explorer.down(1),
    PageUp: () => explorer.pan(part(-0.8)), PageDown: () => explorer.pan(part(0.8)) };
  canvas.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  };
  canvas.onwheel = (event) => { // until the canvas is clicked, the wheel scrolls the page
    if (document.activeElement !== canvas && !event.ctrlKey) return;
    event.preventDefault();
    explorer.zoom(1.0015 ** event.deltaY, event.offsetX);
  };
  const fingers = new Map(); // places of pointers that are down
  let moved = 0;
  canvas.onpointerdown = (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.offsetX);
    moved = 0;
  };
  canvas.onpointermove = (event) => {
    const before = fingers.get(event.pointerId);
    if (before === undefined) return explorer.point(event.offsetX, event.offsetY);
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    fingers.set(event.pointerId, event.offsetX);
    moved += Math.abs(event.offsetX - before);
    if (other === undefined) return explorer.pan(before - event.offsetX);
    const apart = Math.max(8, Math.abs(event.offsetX - other)); // two fingers: pinch
    explorer.zoom(Math.max(8, Math.abs(before - other)) / apart, other);
  };
  canvas.onpointerup = (event) => {
    if (moved < 4) explorer.point(event.offsetX, event.offsetY); // a click, or a tap
    fingers.delete(event.pointerId);
  };
  canvas.onpointercancel = (event) => fingers.delete(event.pointerId);
  canvas.onpointerleave = (event) => { if (event.pointerType === "mouse") explorer.tell(-1); };
  canvas.onfocus = () => { canvas.style.outline = `2px solid ${explorer.face.backward}`; };
  canvas.onblur = () => { canvas.style.outline = "none"; };
}

function controls(explorer) {
  const bar = document.createElement("div"), button = (text, title, onclick) => {
    const made = document.createElement("button");
    Object.assign(made, { type: "button", textContent: text, title, ariaLabel: title, onclick });
    made.style = "font: 13px sans-serif; min-width: 32px; min-height: 28px";
    bar.append(made);
    return made;
  };
  bar.style = "display: flex; flex-wrap: wrap; gap: 4px; align-items: center";
  button("+", "Zoom in", () => explorer.zoom(0.5));
  button("−", "Zoom out", () => explorer.zoom(2));
  button("All", "Show all of the time", () => explorer.look(...explorer.extent));
  if (explorer.steps.length > 1) {
    button("◀ step", "Previous step", () => explorer.step(-1));
    button("step ▶", "Next step", () => explorer.step(1));
  }
  explorer.onfold = (folded) => explorer.fold(folded);
  if (explorer.few.length) {
    const ranks = new Set(explorer.rows.map(({ rank }) => rank)).size;
    const fold = button("", "", () => explorer.onfold(!explorer.folded));
    const shown = document.createElement("span");
    shown.style = "font: 13px sans-serif; margin: 0 6px";
    explorer.onfold = (folded) => {
      explorer.fold(folded);
      fold.textContent = folded ? `All ${ranks} ranks` : "Worst, median, best";
      fold.title = fold.ariaLabel = folded ? `Show all ${ranks} ranks` : "Show three ranks";
      shown.textContent = folded ? explorer.few.map(([, label]) => label).join(", ") : "";
    };
    bar.append(shown);
    explorer.onfold(true);
  }
  const search = document.createElement("input");
  Object.assign(search, { type: "search", placeholder: "rank or name", ariaLabel: "Find a rank or a bar" });
  search.style = "font: 13px sans-serif; min-height: 24px; width: 11em";
  search.onkeydown = (event) => {
    if (event.key === "Enter" && search.value.trim()) explorer.find(search.value);
  };
  bar.append(search);
  return bar;
}

function legend({ legend, face, ink }) { // list the kinds; a page has a list of its own, and passes no legend
  const list = document.createElement("div");
  list.style = "display: flex; flex-wrap: wrap; gap: 2px 14px; font: 12px sans-serif";
  for (const [kind, words] of Object.entries(legend ?? {})) {
    const item = document.createElement("span"), swatch = document.createElement("span");
    swatch.style = `display: inline-block; width: 14px; height: 9px; margin-right: 5px; ` +
      `background: ${face[kind] ?? ink.exposed}; outline: 1px solid ${ink.edge[kind] ?? "transparent"}`;
    item.append(swatch, words);
    list.append(item);
  }
  return list;
}

function follow(el, explorer, picture) { // follow the theme of a notebook: color-scheme in the CSS of pictures
  const look = () => {
    const ink = getComputedStyle(el).colorScheme === "dark" ? picture.dark : picture.ink;
    if (ink === explorer.ink) return;
    explorer.ink_in(ink);
    el.lastElementChild.replaceWith(legend({ ...picture, ink }));
    explorer.later();
  };
  const themes = new MutationObserver(look);
  [document.documentElement, document.body].forEach((node) => themes.observe(node, { attributes: true }));
  requestAnimationFrame(look);
  return themes;
}

async function render({ model, el }) {
  const picture = await unpack(model);
  const [said, box, canvas, room] = ["div", "div", "canvas", "div"].map((tag) => document.createElement(tag));
  Object.assign(canvas, { tabIndex: 0, role: "application", ariaLabel: `${picture.title}. ${HELP}` });
  canvas.style = "width: 100%; display: block; position: sticky; " +
    "top: 0; outline-offset: -2px; touch-action: pan-y";
  box.style = "overflow: hidden auto; position: relative";
  Object.assign(said, { role: "status", style: "min-height: 2.6em; font: 13px sans-serif" });
  el.dataset.lmSuppressShortcuts = "true"; // otherwise JupyterLab takes the arrow keys
  box.append(canvas, room);
  const explorer = new Explorer(picture, canvas, said, box, room);
  el.explorer = explorer;
  el.append(controls(explorer), said, box, legend(picture));
  const themes = picture.dark ? follow(el, explorer, picture) : undefined;
  el.classList.add("ddpkit-ready"); // from now on the still picture is hidden
  listen(canvas, explorer);
  box.onscroll = () => explorer.later();
  const observer = new ResizeObserver(() => explorer.later());
  observer.observe(canvas);
  return () => { observer.disconnect(); themes?.disconnect(); };
}

export default { render };
