// Controls above a picture: native inputs of the browser, with accessible names and values in words.

const STYLE = "display: flex; flex-wrap: wrap; gap: 4px 18px; align-items: center; " +
  "font: 13px system-ui, sans-serif; margin-bottom: 6px";

function element(tag, style, ...inside) {
  const made = document.createElement(tag);
  made.style = style;
  made.append(...inside);
  made.dataset.lmSuppressShortcuts = "true"; // otherwise JupyterLab takes the keys of the focused control
  return made;
}

function slider(control, send) {
  const input = element("input", "vertical-align: middle; width: 130px");
  const said = element("output", "display: inline-block; min-width: 6em");
  Object.assign(input, { type: "range", min: 0, max: control.words.length - 1, step: 1 });
  Object.assign(input, { ariaLabel: control.label, value: control.at });
  const say = () => {
    said.textContent = control.words[input.value];
    input.setAttribute("aria-valuetext", said.textContent);
  };
  said.setAttribute("aria-hidden", "true"); // a screen reader reads the slider's value
  input.oninput = say;
  input.onchange = () => send(Number(input.value));
  say();
  const set = (place) => { input.value = place; say(); };
  return { set, at: () => Number(input.value), parts: [element("label", "", `${control.label} `, input, " ", said)] };
}

function choice(control, send) {
  const list = element("select", "font: inherit");
  list.append(...control.words.map((word, place) => new Option(word, place)));
  list.value = control.at;
  list.onchange = () => send(Number(list.value));
  const set = (place) => { list.value = place; };
  return { set, at: () => Number(list.value), parts: [element("label", "", `${control.label} `, list)] };
}

function player(control, send) {
  const last = control.words.length - 1, own = slider(control, send);
  let timer;
  const go = (place) => { own.set(place); send(place); };
  const button = (name, title, onclick) => {
    const made = element("button", "font: inherit; min-height: 28px", name);
    return Object.assign(made, { type: "button", title, onclick });
  };
  const pause = () => {
    timer = clearInterval(timer);
    play.textContent = "Play";
  };
  const play = button("Play", "one step after the other", () => {
    if (timer) return pause();
    if (own.at() === last) go(0);
    play.textContent = "Pause";
    timer = setInterval(() => (own.at() < last ? go(own.at() + 1) : pause()), control.pace_ms);
  });
  const moves = [
    button("First", "to the beginning", () => go(0)),
    button("Back", "one step back", () => go(Math.max(0, own.at() - 1))),
    button("Next", "one step on", () => go(Math.min(last, own.at() + 1))),
    button("Last", "to the end", () => go(last)),
  ];
  return { ...own, parts: [play, ...moves, ...own.parts], stop: pause };
}

const KINDS = { slider, choice, player };

function hold(el) { // keep the height of an output while its cell runs again
  const area = el.closest(".jp-OutputArea, .output_wrapper")?.parentElement;
  if (!area) return () => {};
  const observer = new ResizeObserver(() => { if (el.isConnected) height = area.offsetHeight; });
  let height = 0;
  observer.observe(area);
  area.style.minHeight = "";
  return () => {
    observer.disconnect();
    area.style.minHeight = `${height}px`;
    setTimeout(() => { area.style.minHeight = ""; }, 5000); // the cell may show no picture now
  };
}

function render({ model, el }) {
  const bar = element("div", STYLE), picture = element("div", "");
  const said = element("div", "line-height: 1.5; font: 14px/1.5 system-ui, sans-serif; white-space: pre-line");
  Object.assign(said, { role: "status" });
  const made = Object.entries(model.get("controls")).map(([name, control]) => {
    const send = (place) => {
      model.set("at", { ...model.get("at"), [name]: place });
      model.save_changes();
    };
    const one = KINDS[control.kind]({ ...control, at: model.get("at")[name] }, send);
    bar.append(...one.parts);
    return [name, one];
  });
  const follow = () => made.forEach(([name, one]) => one.set(model.get("at")[name]));
  const draw = () => { picture.innerHTML = model.get("picture"); };
  const say = () => { said.textContent = model.get("said"); };
  model.on("change:picture", draw);
  model.on("change:said", say);
  model.on("change:at", follow);
  draw();
  say();
  el.append(...(made.length ? [bar] : []), picture, said);
  el.classList.add("ddpkit-ready"); // from now on the still picture is hidden
  let release = () => {};
  requestAnimationFrame(() => { release = hold(el); });
  return () => {
    release();
    made.forEach(([, one]) => one.stop?.());
    model.off("change:picture", draw);
    model.off("change:said", say);
    model.off("change:at", follow);
  };
}

export default { render };
