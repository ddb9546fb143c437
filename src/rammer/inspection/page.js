// `data` is what page.py puts together.
const palette = ["#4477c9", "#e08a3c", "#3f9e73", "#b85c9e", "#cf5b4e", "#2b9fb0", "#a58a2a", "#7b6bd1", "#6f8f3d", "#9c6b4f"];
const left = 92, right = 10, axis = 24, strip = 26, tallest = 620;
const find = id => document.getElementById(id);
const tip = find("tip");
const microseconds = value => value.toLocaleString("en", { maximumFractionDigits: value < 100 ? 2 : 0 }) + " µs";
const megabytes = value => (value / 1e6).toLocaleString("en", { maximumFractionDigits: value < 1e7 ? 2 : 0 }) + " MB";
const percent = value => (100 * value).toFixed(1) + " %";
const sum = values => values.reduce((all, value) => all + value, 0);
const theme = name => getComputedStyle(document.documentElement).getPropertyValue(name);
const { models, runs } = data;
const first = runs[0], own = models[first.model];
// Kinds of most time come first, so that they get colours of their own; behind the palette each hue lies a golden angle
// from the one before.
const kindUs = data.kinds.map(() => 0);
own.operators.forEach(({ kind }, i) => { kindUs[kind] += first.task_us[i]; });
const kinds = data.kinds.map((_, kind) => kind).sort((a, b) => kindUs[b] - kindUs[a]);
const colours = [];
kinds.forEach((kind, i) => { colours[kind] = palette[i] ?? `hsl(${(137.508 * i) % 360} 42% 48%)`; });
const chosen = new Set(), rows = [], views = [];
const longest = Math.max(...runs.map(run => run.total_us));
let from = 0, to = longest, marked = "", shown = models.map(model => model.operators.map(() => true));

function element(parent, tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  parent.append(made);
  return made;
}

// --- Facts, legend, table ------------------------------------------------------------------------------------------

function facts() {
  const table = find("facts"), heads = element(table, "tr");
  element(heads, "th");
  for (const run of runs) element(heads, "th", run.name);
  const row = (label, value) => {
    const cells = runs.map(run => value(run, models[run.model]));
    if (cells.every(cell => cell === undefined)) return;
    const made = element(table, "tr");
    element(made, "td", label);
    for (const cell of cells) element(made, "td", cell ?? "");
  };
  const share = (run, us) => percent(us / (run.veus * run.total_us));
  row("in all", run => microseconds(run.total_us));
  row("of the time computing", run => share(run, sum(run.busy_us)));
  row("at Waits", run => share(run, run.waiting_us));
  row("critical path", run => `${run.critical.length} rTasks, ${microseconds(run.critical_us)}; ${microseconds(Math.max(0, run.total_us - run.critical_us))} between them`);
  for (const name of new Set(models.flatMap(model => Object.keys(model.bounds_us))))
    row(`bound, ${name}`, (_, model) => name in model.bounds_us ? microseconds(model.bounds_us[name]) : undefined);
  row("most memory at a time", (run, model) => `${megabytes(Math.max(0, ...run.live.map(([, bytes]) => bytes)))} of an arena of ${megabytes(model.arena_bytes)}`);
  row("rTasks", run => sum(run.tasks).toLocaleString("en"));
  row("policy", (_, model) => model.policy);
  row("execution units", (run, model) => `${run.veus}, ${model.device}`);
}

function legend() {
  for (const kind of kinds) {
    const button = element(find("legend"), "button", data.kinds[kind]);
    button.style.setProperty("--swatch", colours[kind]);
    button.setAttribute("aria-pressed", false);
    button.addEventListener("click", () => {
      if (!chosen.delete(kind)) chosen.add(kind);
      button.setAttribute("aria-pressed", chosen.has(kind));
      filter();
    });
  }
  element(find("legend"), "span", "waiting", "wait").style.setProperty("--swatch", "var(--wait)");
  element(find("legend"), "span", "critical path", "path");
  if (runs.some(run => run.cuts_us.length)) element(find("legend"), "span", "all units meet, and the next rProgram begins", "cut");
}

// The runs of the first model stand in columns; an rOperator of another model is found by its name.
function table() {
  const columns = runs.map(run => {
    const places = new Map(models[run.model].operators.map(({ name }, i) => [name, i]));
    return { run, at: run.model === first.model ? i => i : i => places.get(own.operators[i].name) };
  });
  const heads = element(find("heads"), "tr");
  for (const [name, number] of [["rOperator"], ["kind"], ["rKernel"], ["rTasks", 1], ...runs.map(run => [run.name + ", µs", 1]), ["share", 1], [""]])
    element(heads, "th", name, number ? "number" : "");
  const busy = sum(first.task_us) || 1;
  const order = own.operators.map((_, i) => i).filter(i => first.tasks[i]).sort((a, b) => first.task_us[b] - first.task_us[a]);
  const widest = order.length ? first.task_us[order[0]] || 1 : 1;
  for (const i of order) {
    const operator = own.operators[i], row = element(find("operators"), "tr");
    const [skeleton, tile] = data.candidates[operator.candidates][operator.chosen];
    row.style.setProperty("--swatch", colours[operator.kind]);
    element(row, "td", operator.name, "name").title = operator.from;
    element(row, "td", data.kinds[operator.kind], "soft");
    element(row, "td", `${skeleton} ${tile}`, "soft");
    element(row, "td", first.tasks[i], "number");
    for (const { run, at } of columns) element(row, "td", run.task_us[at(i)]?.toFixed(2) ?? "", "number");
    element(row, "td", percent(first.task_us[i] / busy), "number");
    element(element(row, "td", undefined, "share"), "i").style.width = 100 * first.task_us[i] / widest + "%";
    row.addEventListener("pointerenter", () => mark(operator.name));
    row.addEventListener("pointerleave", () => mark(""));
    row.addEventListener("click", () => detail(own, i));
    rows.push([i, row]);
  }
}

// Shows rOperators of the kinds that are pressed, whose names, or the names of their nodes, hold what is searched for.
function filter() {
  const text = find("search").value.trim().toLowerCase();
  shown = models.map(model => model.operators.map(({ name, kind, from: nodes }) =>
    (!chosen.size || chosen.has(kind)) && `${name} ${nodes}`.toLowerCase().includes(text)));
  for (const [i, row] of rows) row.hidden = !shown[first.model][i];
  const found = rows.filter(([i]) => shown[first.model][i]).map(([i]) => first.task_us[i]);
  find("found").textContent = text || chosen.size
    ? `${found.length} of ${rows.length} rOperators, ${percent(sum(found) / (sum(first.task_us) || 1))} of the time computing` : "";
  draw();
}

function mark(name) {
  if (name !== marked) { marked = name; draw(); }
}

function detail(model, i) {
  const operator = model.operators[i], body = find("candidates");
  find("detail").hidden = false;
  find("which").textContent = `Candidates of ${operator.name}` + (models.length > 1 ? ` (${model.name})` : "");
  find("why").textContent = `Chosen: ${operator.reason}. ${operator.from ? "From " + operator.from : ""}`;
  body.replaceChildren();
  data.candidates[operator.candidates].forEach(([skeleton, tile, form, tasks, predicted, measured, scheduled, bound], number) => {
    const row = element(body, "tr", undefined, number === operator.chosen ? "chosen" : "");
    for (const text of [(number === operator.chosen ? "▸ " : "") + skeleton, tile, form]) element(row, "td", text);
    const figures = [tasks, predicted, measured, scheduled, Math.ceil(tasks / model.veus) * scheduled, tasks * scheduled];
    figures.forEach((figure, column) => element(row, "td", figure === null ? "" : column ? figure.toFixed(2) : figure, "number"));
    element(row, "td", bound);
  });
}

// --- Timelines -----------------------------------------------------------------------------------------------------

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map(m => m * power).find(step => step >= rough);
}

// The end of a path tells more than its beginning.
function ending(context, text, width) {
  const share = width / context.measureText(text).width;
  return share >= 1 ? text : "…" + text.slice(text.length - Math.max(1, Math.floor(share * text.length) - 1));
}

// Of bars in order, the first that ends at a time or later.
function firstAt(run, lane, time) {
  let low = 0, high = lane.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (run.bars.end[lane[middle]] < 1e3 * time) low = middle + 1; else high = middle;
  }
  return low;
}

// One run on a canvas: strips of what is used over time, then a lane for each unit; `lane` pixels high, `top` units down.
class View {
  constructor(number, optional) {
    const bar = element(find("views"), "div", undefined, "run");
    this.select = element(bar, "select");
    this.select.setAttribute("aria-label", "Which run");
    if (optional) element(this.select, "option", "nothing beside it").value = -1;
    runs.forEach((run, i) => { element(this.select, "option", run.name).value = i; });
    this.note = element(bar, "span", "", "soft");
    this.canvas = element(find("views"), "canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "Timeline of rTasks on execution units; the table below has the totals");
    this.context = this.canvas.getContext("2d");
    this.drag = null;
    this.select.addEventListener("change", () => this.show(Number(this.select.value)));
    this.listen();
    this.show(number);
  }

  show(number) {
    this.select.value = number;
    this.run = runs[number];
    this.canvas.hidden = !this.run;
    this.canvas.style.display = this.run ? "block" : "none";
    this.note.textContent = this.run ? microseconds(this.run.total_us) : "";
    if (!this.run) return;
    this.model = models[this.run.model];
    this.lanes = Array.from({ length: this.run.veus }, () => []);
    this.run.bars.veu.forEach((veu, i) => { this.lanes[veu].push(i); });
    this.critical = new Set(this.run.critical);
    this.top = 0;
    this.lane = this.least = Math.max(4, Math.min(54, (tallest - this.head()) / this.run.veus));
    this.draw();
  }

  head() { return axis + 2 * strip; }
  visible() { return (this.canvas.clientHeight - this.head()) / this.lane; }
  x(time) { return left + (time - from) / (to - from) * (this.canvas.clientWidth - left - right); }
  timeAt(px) { return from + (px - left) / (this.canvas.clientWidth - left - right) * (to - from); }

  draw() {
    if (!this.run) return;
    const { run, model, canvas, context, lane } = this, ratio = window.devicePixelRatio || 1;
    const width = canvas.clientWidth, height = Math.min(tallest, this.head() + this.least * run.veus);
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const ink = theme("--ink"), soft = theme("--soft"), line = theme("--line"), ground = theme("--lane"), wait = theme("--wait");
    const bar = lane - Math.min(10, lane * 0.2), last = Math.min(run.veus, Math.ceil(this.top + this.visible()));
    context.textBaseline = "middle";
    const step = niceStep((to - from) / Math.max(2, width / 150));
    for (let t = Math.ceil(from / step) * step; t <= to; t += step) {
      context.fillStyle = line; context.fillRect(this.x(t), axis - 8, 1, height);
      if (this.x(t) > width - 60) continue;
      context.fillStyle = soft; context.font = "12px system-ui, sans-serif";
      context.fillText((step >= 1 ? Math.round(t).toLocaleString("en") : t.toFixed(step < 0.01 ? 3 : 2)) + " µs", this.x(t) + 4, 10);
    }
    this.strips();
    context.save();
    context.beginPath(); context.rect(0, this.head() - 6, width, height); context.clip();
    for (let v = Math.floor(this.top); v < last; v++) {
      const y = this.head() + (v - this.top) * lane;
      context.fillStyle = ground; context.fillRect(left, y, width - left - right, bar);
      if (lane < 12 && v % 10) continue;
      context.fillStyle = ink; context.font = "600 11.5px system-ui, sans-serif";
      context.fillText("vEU " + v, 0, y + bar / 2 - (lane > 30 ? 8 : 0));
      context.fillStyle = soft; context.font = "11.5px system-ui, sans-serif";
      if (lane > 30) context.fillText(Math.round(100 * run.busy_us[v] / run.total_us) + " % busy", 0, y + bar / 2 + 9);
    }
    context.beginPath(); context.rect(left, this.head(), width - left - right, height); context.clip();
    for (let v = Math.floor(this.top); v < last; v++) this.bars(v, this.head() + (v - this.top) * lane, bar, wait);
    context.globalAlpha = 1;
    if (find("path").checked) this.path(bar);
    context.fillStyle = ink;
    for (const cut of run.cuts_us) for (let y = this.head(); y < height; y += 6) context.fillRect(this.x(cut) - 1, y, 1, 3);
    context.restore();
  }

  // What is narrower than half a pixel is drawn where nothing is yet: 50,000 rTasks are as many as there are pixels.
  bars(veu, y, height, wait) {
    const { run, context, model } = this, { start, end, operator } = run.bars, lane = this.lanes[veu], last = 1e3 * to;
    let drawn = -1;
    for (let k = firstAt(run, lane, from); k < lane.length; k++) {
      const i = lane[k];
      if (start[i] > last) break;
      const a = this.x(start[i] / 1e3), b = this.x(end[i] / 1e3), w = Math.max(b - a, 0.5), number = operator[i];
      if (b < drawn + 0.5 && number >= 0 && !this.critical.has(i)) continue;
      if (number < 0) {
        context.globalAlpha = 1;
        context.fillStyle = wait; context.fillRect(a, y + height * 0.45, w, Math.max(1, height * 0.1));
        continue;
      }
      drawn = b;
      const { name, kind } = model.operators[number], seen = shown[run.model][number];
      const faded = find("path").checked && !this.critical.has(i);
      context.globalAlpha = !seen ? 0.1 : marked ? (marked === name ? 1 : 0.22) : faded ? 0.3 : 1;
      context.fillStyle = colours[kind];
      if (w > 6 && height > 12) {
        context.beginPath();
        context.roundRect(a, y, w - 0.7, height, Math.min(4, w / 3));
        context.fill();
      } else context.fillRect(a, y, w > 2 ? w - 0.5 : w, height);
      if (w > 44 && height > 14 && seen) this.label(name, end[i] - start[i], a, y, w, height);
    }
  }

  label(name, ns, a, y, w, height) {
    const { context } = this;
    context.save();
    context.beginPath(); context.rect(a, y, w, height); context.clip();
    context.fillStyle = "#fff"; context.font = "600 12px system-ui, sans-serif";
    context.fillText(ending(context, name, w - 14), a + 7, y + height / 2 - (height > 32 ? 8 : 0));
    context.font = "12px system-ui, sans-serif";
    if (height > 32) context.fillText(microseconds(ns / 1e3), a + 7, y + height / 2 + 9);
    context.restore();
  }

  path(height) {
    const { run, context } = this;
    context.strokeStyle = theme("--path"); context.lineWidth = 1.5;
    context.beginPath();
    run.critical.forEach((i, place) => {
      const y = this.head() + (run.bars.veu[i] - this.top) * this.lane + height / 2;
      context[place ? "lineTo" : "moveTo"](this.x(run.bars.start[i] / 1e3), y);
      context.lineTo(this.x(run.bars.end[i] / 1e3), y);
    });
    context.stroke();
  }

  // Units that compute, and memory that holds what is still needed, over time.
  strips() {
    const { run, model, context } = this, width = this.canvas.clientWidth, part = run.total_us / run.busy.length;
    const most = Math.max(1, ...run.live.map(([, bytes]) => bytes));
    const one = (y, label, points) => {
      context.fillStyle = theme("--soft"); context.font = "11.5px system-ui, sans-serif";
      context.fillText(label, 0, y + strip / 2);
      context.save();
      context.beginPath(); context.rect(left, y, width - left - right, strip); context.clip();
      context.fillStyle = theme("--use");
      for (const [start, end, share] of points)
        if (end >= from && start <= to) {
          const high = share * (strip - 6);
          context.fillRect(this.x(start), y + strip - 3 - high, Math.max(this.x(end) - this.x(start), 0.5), high);
        }
      context.restore();
    };
    one(axis, "units busy", run.busy.map((share, i) => [i * part, (i + 1) * part, share]));
    one(axis + strip, "memory", run.live.map(([start, bytes], i) => [start, run.live[i + 1]?.[0] ?? run.total_us, bytes / most]));
  }

  hit(event) {
    const veu = Math.floor(this.top + (event.offsetY - this.head()) / this.lane), time = this.timeAt(event.offsetX);
    if (event.offsetX < left || event.offsetY < this.head() || !this.lanes[veu]) return undefined;
    const lane = this.lanes[veu], near = 0.5 * (to - from) / this.canvas.clientWidth;
    const i = lane[firstAt(this.run, lane, time - near)];
    return i !== undefined && this.run.bars.start[i] <= 1e3 * (time + near) ? i : undefined;
  }

  describe(i) {
    const { run, model } = this, { veu, operator, tile, start, end } = run.bars;
    if (operator[i] < 0) return `waiting for ${run.awaited[tile[i]]}\n${when(run, i)}`;
    const number = operator[i], { name, kind, from: nodes, reason, candidates, chosen: pick } = model.operators[number];
    const [skeleton, size, form, , , , scheduled, bound] = data.candidates[candidates][pick];
    const lane = this.lanes[veu[i]], ahead = lane[lane.indexOf(i) - 1];
    const lines = [`${name} [${tile[i]}]`, when(run, i), `${data.kinds[kind]}: ${run.tasks[number]} rTasks, ${microseconds(run.task_us[number])} in all`,
      `${skeleton} ${size} ${form}`, `predicted ${microseconds(scheduled)}, bound by ${bound}; chosen: ${reason}`];
    if (ahead !== undefined && operator[ahead] < 0) lines.push(`waited ${microseconds((end[ahead] - start[ahead]) / 1e3)} for ${run.awaited[tile[ahead]]}`);
    for (const other of runs)
      if (other !== run && other.model === run.model) {
        const j = twin(other, number, tile[i]);
        if (j !== undefined) lines.push(`${other.name}: ${when(other, j)}`);
      }
    if (this.critical.has(i)) lines.push("on the critical path");
    return lines.concat(nodes ? `from ${nodes}` : []).join("\n");
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", event => {
      event.preventDefault();
      const factor = Math.exp((event.deltaY || event.deltaX) * 0.002);
      if (event.shiftKey) {
        const at = this.top + (event.offsetY - this.head()) / this.lane;
        this.lane = Math.max(this.least, Math.min(80, this.lane / factor));
        this.move(at - (event.offsetY - this.head()) / this.lane);
        this.draw();
        return;
      }
      const t = this.timeAt(event.offsetX), span = Math.min(longest, Math.max(0.05, (to - from) * factor));
      from = Math.max(0, t - (t - from) / (to - from) * span);
      to = Math.min(longest, from + span); from = to - span;
      draw();
    }, { passive: false });
    canvas.addEventListener("pointerdown", event => {
      this.drag = [event.offsetX, event.offsetY, from, to, this.top];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointerup", () => { this.drag = null; });
    canvas.addEventListener("pointerleave", () => { tip.style.display = "none"; mark(""); });
    canvas.addEventListener("dblclick", () => { from = 0; to = longest; this.lane = this.least; this.top = 0; draw(); });
    canvas.addEventListener("click", event => {
      const i = this.hit(event);
      if (i !== undefined && this.run.bars.operator[i] >= 0) detail(this.model, this.run.bars.operator[i]);
    });
    canvas.addEventListener("pointermove", event => {
      if (!this.drag) { this.point(event); return; }
      const [x, y, start, end, top] = this.drag, shift = (x - event.offsetX) / (canvas.clientWidth - left - right) * (end - start);
      const bounded = Math.max(-start, Math.min(shift, longest - end));
      from = start + bounded; to = end + bounded;
      this.move(top + (y - event.offsetY) / this.lane);
      draw();
    });
  }

  move(top) { this.top = Math.max(0, Math.min(top, this.run.veus - this.visible())); }

  point(event) {
    const i = this.hit(event), number = i === undefined ? -1 : this.run.bars.operator[i];
    tip.style.display = i === undefined ? "none" : "block";
    mark(number < 0 ? "" : this.model.operators[number].name);
    if (i === undefined) return;
    tip.textContent = this.describe(i);
    tip.style.left = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 12) + "px";
    tip.style.top = (event.clientY + 18 + tip.offsetHeight < window.innerHeight ? event.clientY + 18 : event.clientY - tip.offsetHeight - 10) + "px";
  }
}

function when({ bars: { veu, start, end } }, i) {
  return `${microseconds((end[i] - start[i]) / 1e3)} on vEU ${veu[i]}, from ${(start[i] / 1e3).toFixed(2)} to ${(end[i] / 1e3).toFixed(2)} µs`;
}

// The same rTask in another run of its model.
function twin(run, operator, tile) {
  run.places ??= new Map(run.bars.operator.map((number, i) => [number * 2 ** 26 + (number < 0 ? 0 : run.bars.tile[i]), i]));
  return run.places.get(operator * 2 ** 26 + tile);
}

function draw() {
  for (const view of views) view.draw();
}

document.title = data.title;
find("title").textContent = data.title;
facts();
legend();
table();
views.push(new View(0, false));
// Beside it the first run of the other model, where there are two.
if (runs.length > 1) views.push(new View(Math.max(1, runs.findIndex(run => run.model)), true));
find("search").addEventListener("input", filter);
find("path").addEventListener("change", draw);
window.addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
