"use strict";
// The page is complete without this script, which adds reading and zooming of curves, and interactive walks.

const clamp = (x, low, high) => Math.min(Math.max(x, low), high);
const data = (root) => JSON.parse(root.querySelector("script[type='application/json']").textContent);
const make = (name, className, text = "") => {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
};

function written(value, digits = 6) {
  if (value === null || !Number.isFinite(value)) return "not a number";
  const small = value === 0 || (Math.abs(value) >= 1e-4 && Math.abs(value) < 1e7);
  const text = small
    ? value.toLocaleString("en-GB", { maximumSignificantDigits: digits })
    : value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  return text.replace("-", "−");
}

function roundMarks(low, high, about) {
  const raw = (high - low) / about, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((one) => one >= raw * 0.999);
  const marks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) marks.push(k * step);
  return marks;
}

function logMarks(low, high) {
  const every = Math.max(1, Math.ceil((high - low) / 6));
  const factors = high - low > 2.2 ? [1] : high - low > 1 ? [1, 3] : [1, 2, 5];
  const marks = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    if (power % every === 0) marks.push(...factors.map((factor) => power + Math.log10(factor)));
  }
  const inside = marks.filter((mark) => low <= mark && mark <= high);
  return inside.length >= 2 ? inside : roundMarks(low, high, 5);
}

function curve(root) {
  const { x, y, log, label, lines } = data(root);
  const plot = root.querySelector(".plot"), surface = root.querySelector(".surface"), svg = root.querySelector("svg");
  const marks = { x: root.querySelector(".x-marks"), y: root.querySelector(".y-marks") };
  const buttons = Object.fromEntries([...root.querySelectorAll("[data-zoom]")].map((one) => [one.dataset.zoom, one]));
  const steps = [...new Set(lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  if (!steps.length) return;
  const whole = { x: [...x], y: [...y] };
  const narrowest = (x[1] - x[0]) * Math.min(1, 4 / steps.length);
  const scaled = (value) => (log ? Math.log10(value) : value);
  const across = (value) => (value - view.x[0]) / (view.x[1] - view.x[0]);
  const up = (value) => (scaled(value) - view.y[0]) / (view.y[1] - view.y[0]);
  let view = { x: [...x], y: [...y] }, at = steps.length - 1, dragged = null, tip = null;

  // range of the curves between two steps, with a margin
  function heights(from, to) {
    let low = Infinity, high = -Infinity;
    for (const line of lines) {
      line.x.forEach((step, i) => {
        if (step < from || step > to || line.y[i] === null) return;
        low = Math.min(low, scaled((line.low || line.y)[i]));
        high = Math.max(high, scaled((line.high || line.y)[i]));
      });
    }
    if (!(high >= low)) return whole.y;
    const room = 0.06 * (high - low) || 0.05 * Math.abs(high) || 0.5;
    return [low - room, high + room];
  }

  function show(from, to) {
    if (steps.length < 3) return; // nothing to zoom into
    const width = clamp(to - from, narrowest, whole.x[1] - whole.x[0]);
    from = clamp((from + to - width) / 2, whole.x[0], whole.x[1] - width);
    const all = width >= (whole.x[1] - whole.x[0]) * 0.999;
    view = all ? { x: [...whole.x], y: [...whole.y] } : { x: [from, from + width], y: heights(from, from + width) };
    const unit = (axis, value) => (1000 * (value - whole[axis][0])) / (whole[axis][1] - whole[axis][0]);
    const [left, right, bottom, top] = [unit("x", view.x[0]), unit("x", view.x[1]), unit("y", view.y[0]), unit("y", view.y[1])];
    const box = [left, 1000 - top, right - left, top - bottom];
    svg.setAttribute("viewBox", box.map((one) => Number(one.toFixed(6))).join(" "));
    for (const [axis, side, about] of [["x", "left", 6], ["y", "bottom", 5]]) {
      const [low, high] = view[axis];
      marks[axis].replaceChildren(
        ...(axis === "y" && log ? logMarks(low, high) : roundMarks(low, high, about)).map((mark) => {
          const one = make("span", "");
          one.append(make("b", "", axis === "y" && log ? written(10 ** mark, 3) : written(mark)));
          one.style[side] = `${(100 * (mark - low)) / (high - low)}%`;
          return one;
        }),
      );
    }
    buttons.all.disabled = buttons.out.disabled = all;
    buttons.in.disabled = width <= narrowest * 1.001;
    if (tip) read(at);
  }

  function zoom(factor, center = (view.x[0] + view.x[1]) / 2) {
    show(center - (center - view.x[0]) * factor, center + (view.x[1] - center) * factor);
  }

  // show the values at one step: line, dots and text
  function read(index) {
    at = clamp(index, 0, steps.length - 1);
    const step = steps[at];
    forget();
    tip = make("div", "tip");
    tip.append(make("div", "", `${label} ${written(step, 12)}`));
    const hair = make("div", "hair");
    hair.style.left = `${100 * across(step)}%`;
    plot.append(hair);
    lines.forEach((line, i) => {
      const k = line.x.indexOf(step);
      if (k < 0) return;
      const row = make("div", "");
      row.append(make("i", `c${i % 7}`), (lines.length > 1 ? `${line.name} ` : "") + written(line.y[k]));
      tip.append(row);
      if (line.low && line.y[k] !== null) {
        tip.append(make("div", "", `${line.seeds} seeds: ${written(line.low[k], 4)} to ${written(line.high[k], 4)}`));
      }
      if (line.y[k] === null) return;
      const spot = make("div", `spot c${i % 7}`);
      spot.style.left = `${100 * across(step)}%`;
      spot.style.bottom = `${100 * up(line.y[k])}%`;
      plot.append(spot);
    });
    plot.append(tip);
    const left = across(step) * plot.clientWidth, right = left > plot.clientWidth / 2;
    const low = right ? left - tip.offsetWidth - 10 : left + 10;
    tip.style.left = `${clamp(low, -48, plot.clientWidth - tip.offsetWidth)}px`;
    surface.setAttribute("aria-valuenow", at);
    surface.setAttribute("aria-valuetext", [...tip.children].map((row) => row.textContent).join("; "));
  }

  function forget() {
    plot.querySelectorAll(".hair, .spot, .tip").forEach((one) => one.remove());
    tip = null;
  }

  function nearest(value) {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (steps[middle] < value) low = middle; else high = middle;
    }
    return value - steps[low] < steps[high] - value ? low : high;
  }

  const under = (event) => {
    const box = surface.getBoundingClientRect();
    return view.x[0] + clamp((event.clientX - box.left) / box.width, 0, 1) * (view.x[1] - view.x[0]);
  };
  surface.addEventListener("pointermove", (event) => {
    const value = under(event);
    read(nearest(value));
    if (dragged === null) return;
    const chosen = plot.querySelector(".chosen") || plot.appendChild(make("div", "chosen"));
    const [from, to] = [Math.min(dragged, value), Math.max(dragged, value)].map(across);
    chosen.style.left = `${100 * from}%`;
    chosen.style.width = `${100 * (to - from)}%`;
  });
  surface.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) {
      dragged = under(event);
      surface.setPointerCapture(event.pointerId);
    } else if (event.pointerType !== "mouse") read(nearest(under(event)));
  });
  const drop = (event) => {
    const from = dragged, to = under(event);
    dragged = null;
    plot.querySelector(".chosen")?.remove();
    if (event.type === "pointerup" && from !== null && Math.abs(across(from) - across(to)) > 0.02) {
      show(Math.min(from, to), Math.max(from, to));
    }
  };
  surface.addEventListener("pointerup", drop);
  surface.addEventListener("pointercancel", drop);
  surface.addEventListener("pointerleave", () => document.activeElement !== surface && forget());
  surface.addEventListener("dblclick", () => show(...whole.x));
  surface.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the wheel alone scrolls the page
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, under(event));
  }, { passive: false });
  surface.addEventListener("blur", forget);
  surface.addEventListener("keydown", (event) => {
    const far = Math.max(1, Math.round(steps.length / 20));
    const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -far, PageUp: far };
    if (event.key in moves) read(at + moves[event.key]);
    else if (event.key === "Home") read(0);
    else if (event.key === "End") read(steps.length - 1);
    else if (event.key === "+" || event.key === "=") zoom(0.5, steps[at]);
    else if (event.key === "-") zoom(2, steps[at]);
    else if (event.key === "0" || event.key === "Escape") show(...whole.x);
    else return;
    event.preventDefault();
    const [from, to] = view.x; // keep the current step in view
    if (steps[at] < from) show(steps[at], steps[at] + to - from);
    if (steps[at] > to) show(steps[at] - (to - from), steps[at]);
  });
  buttons.in.addEventListener("click", () => zoom(0.5));
  buttons.out.addEventListener("click", () => zoom(2));
  buttons.all.addEventListener("click", () => show(...whole.x));
  buttons.all.disabled = buttons.out.disabled = true;
  buttons.in.disabled = steps.length < 3;
}

function walk(root) {
  const labels = data(root);
  const stage = root.querySelector(".stage"), sheet = root.querySelector(".sheet"), cursor = root.querySelector(".cursor");
  const slides = Object.fromEntries([...root.querySelectorAll("[data-axis]")].map((one) => [one.dataset.axis, one]));
  const plays = [...root.querySelectorAll("[data-play]")];
  const names = { h: labels.rows, t: labels.columns };
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  let timer = null;

  function show() {
    const place = { h: Number(slides.h.value), t: Number(slides.t.value) };
    for (const axis of ["h", "t"]) {
      const text = names[axis][place[axis]];
      slides[axis].setAttribute("aria-valuetext", text);
      slides[axis].parentElement.querySelector("output").textContent = text;
    }
    const share = (axis) => (names[axis].length > 1 ? (100 * place[axis]) / (names[axis].length - 1) : 0);
    stage.style.backgroundPosition = `${share("t")}% ${share("h")}%`;
    stage.setAttribute("aria-label", `h = ${names.h[place.h]}, step ${names.t[place.t]}`);
    cursor.style.left = `${(100 * place.t) / names.t.length}%`;
    cursor.style.top = `${(100 * place.h) / names.h.length}%`;
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    for (const play of plays) {
      play.setAttribute("aria-pressed", "false");
      play.textContent = play.dataset.play === "t" ? "Play" : "Walk";
    }
  }

  // play once from the current position to the last, or from the first if already at the last
  function start(play) {
    const slide = slides[play.dataset.play];
    stop();
    play.setAttribute("aria-pressed", "true");
    play.textContent = "Pause";
    if (slide.value === slide.max) slide.value = 0;
    show();
    timer = setInterval(() => {
      slide.value = Number(slide.value) + 1;
      show();
      if (slide.value === slide.max) stop();
    }, calm.matches ? 700 : 250);
  }

  for (const play of plays) {
    play.addEventListener("click", () => (play.getAttribute("aria-pressed") === "true" ? stop() : start(play)));
  }
  for (const axis of ["h", "t"]) {
    slides[axis].addEventListener("input", () => {
      const running = plays.find((play) => play.getAttribute("aria-pressed") === "true");
      if (running?.dataset.play === axis) stop();
      show();
    });
  }
  sheet.addEventListener("click", (event) => {
    const box = sheet.getBoundingClientRect();
    stop();
    slides.t.value = Math.floor(((event.clientX - box.left) / box.width) * names.t.length);
    slides.h.value = Math.floor(((event.clientY - box.top) / box.height) * names.h.length);
    show();
  });
  stage.style.backgroundImage = `url(${sheet.src})`;
  stage.hidden = cursor.hidden = false;
  show();
}

document.documentElement.classList.add("live");
document.querySelectorAll(".curve").forEach(curve);
document.querySelectorAll(".walk").forEach(walk);
const folded = [...document.querySelectorAll("details")];
for (const link of document.querySelectorAll("nav a")) {
  link.addEventListener("click", () => {
    const inside = document.querySelector(`${link.getAttribute("href")} > details`);
    if (inside) inside.open = true;
  });
}
let opened = [];
addEventListener("beforeprint", () => {
  opened = folded.filter((one) => !one.open);
  opened.forEach((one) => (one.open = true));
});
addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));
