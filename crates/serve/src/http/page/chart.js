// SPDX-License-Identifier: MIT OR Apache-2.0
// A chart: lines over time, and a table with their names and figures, which is also the legend.
//
// The mark, moved by the pointer or by keys, makes the table say the values at that moment. A gap in the data is a gap in
// the line.

const LEFT = 60, RIGHT = 6, TOP = 8, BELOW = 18;
/** Lengths of dashes and gaps, so that lines can be told apart without colours. */
const DASHES = ["", "7 4", "2 4", "9 3 2 3"];

/** Steps of an axis at round numbers: of powers of 2 for bytes, else of 10. */
function roundSteps(top, base) {
  const least = top / 4;
  const power = Math.pow(base, Math.floor(Math.log(least) / Math.log(base)));
  const parts = base === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  return power * parts.find((part) => part * power >= least * 0.999);
}

/** The vertical axis: where a value is (0 to 1), and which values have a grid line. */
function axis(panel, series) {
  const all = series.flatMap((it) => it.values).filter(known);
  if (panel.scale === "log") {
    const positive = all.filter((it) => it > 0);
    const low = Math.floor(Math.log10(Math.min(...(positive.length ? positive : [10]))));
    const high = Math.max(Math.ceil(Math.log10(Math.max(...(positive.length ? positive : [1000])))), low + 1);
    const ticks = [];
    for (let at = low; at <= high; at += Math.ceil((high - low) / 4)) ticks.push(Math.pow(10, at));
    return { place: (value) => (Math.log10(Math.max(value, Math.pow(10, low))) - low) / (high - low), ticks };
  }
  const top = panel.top ?? Math.max(...all, panel.least ?? 1);
  const step = panel.top ? panel.top / 4 : roundSteps(top, panel.say === rate || panel.say === bytes ? 1024 : 10);
  const end = panel.top ?? Math.ceil(top / step - 0.001) * step;
  const ticks = [];
  for (let at = 0; at <= end * 1.001; at += step) ticks.push(at);
  return { place: (value) => value / end, ticks };
}

/** The times with a grid line: round ones, as many as there is room for. */
function moments(begin, end, width) {
  const choices = [30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600].map((it) => it * 1000);
  const step = choices.find((it) => (end - begin) / it <= width / 62) ?? 43200000;
  const zone = new Date(end).getTimezoneOffset() * 60000;
  const found = [];
  for (let at = Math.ceil((begin - zone) / step) * step + zone; at <= end; at += step) found.push(at);
  return { found, seconds: step < 60000 };
}

/** A line's path; where a value is missing, the line ends. */
function path(values, x, y) {
  let text = "", open = false;
  values.forEach((value, at) => {
    if (!known(value)) {
      open = false;
    } else {
      text += (open ? "L" : "M") + x(at).toFixed(1) + " " + y(value).toFixed(1) + (open || known(values[at + 1]) ? "" : "h.1");
      open = true;
    }
  });
  return text;
}

/** The area below a line. */
function area(values, x, y, floor) {
  let text = "", first = null;
  values.forEach((value, at) => {
    if (known(value)) {
      text += (first === null ? `M${x(at).toFixed(1)} ${floor}` : "") + `L${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
      first ??= at;
      if (!known(values[at + 1])) {
        text += `L${x(at).toFixed(1)} ${floor}Z`;
        first = null;
      }
    }
  });
  return text;
}

const middleOf = {
  mean: (values) => values.reduce((sum, it) => sum + it, 0) / values.length,
  median: (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)],
};

/** What a chart's table says of a line. */
function summary(values, panel, recent) {
  const all = values.filter(known);
  const last = values.slice(-recent).filter(known);
  if (all.length === 0) return { now: null, middle: null, most: null };
  const middle = middleOf[panel.middle ?? "mean"];
  return { now: last.length ? middle(last) : null, middle: middle(all), most: Math.max(...all) };
}

/** One chart of the page. It keeps its elements; `show` draws new data. */
class Chart {
  constructor(panel) {
    this.panel = panel;
    this.at = null;
    this.note = element("small");
    this.picture = drawn("svg", { class: "chart", role: "img", tabindex: "0", "aria-describedby": "keys" });
    this.column = element("th", { scope: "col" }, "now");
    const row = (line, nth) => {
      const cells = [element("td"), element("td"), element("td")];
      const swatch = drawn("svg", { class: "swatch", "aria-hidden": "true" },
        drawn("line", { class: "s-" + line.colour, x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": DASHES[line.dash ?? nth] }));
      return { cells, row: element("tr", {}, element("th", { scope: "row" }, swatch, line.name), cells) };
    };
    this.rows = panel.lines.map(row);
    const middle = panel.middle ?? "mean";
    const head = element("tr", {}, element("th", { scope: "col" }, element("span", { class: "hidden" }, "line")), this.column,
      element("th", { scope: "col" }, middle), element("th", { scope: "col" }, "highest"));
    this.figure = element("figure", {}, element("figcaption", {}, panel.title, this.note), this.picture,
      element("table", { "aria-label": panel.title }, element("thead", {}, head), element("tbody", {}, this.rows.map((it) => it.row))));
    this.picture.addEventListener("pointermove", (event) => this.point(event));
    this.picture.addEventListener("pointerleave", () => this.mark(null));
    this.picture.addEventListener("keydown", (event) => this.key(event));
    this.picture.addEventListener("blur", () => this.mark(null));
  }

  /** Draws the lines of `data`: the begin and length of steps in milliseconds, how many are recent, and values by name. */
  show(data) {
    this.data = data;
    this.series = this.panel.lines.map((line) => ({ line, values: data.series[line.of] ?? [] }));
    this.draw();
  }

  draw() {
    if (!this.data) return;
    const { panel, data, series } = this;
    const width = Math.max(this.picture.clientWidth, 200), height = 150;
    const floor = height - BELOW, end = width - RIGHT;
    const steps = data.steps;
    const x = (at) => LEFT + ((at + 1) / steps) * (end - LEFT);
    const { place, ticks } = axis(panel, series);
    const y = (value) => floor - place(value) * (floor - TOP);
    const parts = ticks.flatMap((tick) => [
      drawn("path", { class: "grid", d: `M${LEFT} ${Math.round(y(tick)) + 0.5}H${end}` }),
      drawn("text", { x: LEFT - 6, y: y(tick) + 3.5, "text-anchor": "end" }, panel.say(tick).replace(/(\.\d*?)0+(?!\d)/, "$1").replace(/\.(?!\d)/, "")),
    ]);
    const from = data.begin, to = data.begin + steps * data.step;
    const { found, seconds } = moments(from, to, end - LEFT);
    for (const moment of found) {
      const at = LEFT + ((moment - from) / (to - from)) * (end - LEFT);
      const anchor = at > end - 18 ? "end" : "middle";
      parts.push(drawn("path", { class: "axis", d: `M${at.toFixed(1)} ${floor}v4` }));
      if (at > LEFT + 12) parts.push(drawn("text", { x: anchor === "end" ? end + RIGHT : at, y: height - 3, "text-anchor": anchor }, clock(moment, seconds)));
    }
    parts.push(drawn("path", { class: "axis", d: `M${LEFT} ${floor + 0.5}H${end}` }));
    series.forEach(({ line, values }, nth) => {
      if (line.filled) parts.push(drawn("path", { class: "area f-" + line.colour, d: area(values, x, y, floor) }));
      parts.push(drawn("path", { class: "line s-" + line.colour, "stroke-dasharray": DASHES[line.dash ?? nth], d: path(values, x, y) }));
    });
    const empty = !series.some(({ values }) => values.some(known));
    if (empty) parts.push(drawn("text", { class: "empty", x: (LEFT + end) / 2, y: (TOP + floor) / 2, "text-anchor": "middle" }, panel.empty ?? "nothing yet"));
    this.bar = drawn("path", { class: "mark", d: "" });
    parts.push(this.bar);
    this.picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.picture.replaceChildren(...parts);
    this.place = x;
    const told = this.tell();
    const said = told.map(({ now }, nth) => `${panel.lines[nth].name} ${panel.say(now)}`).join(", ");
    this.picture.setAttribute("aria-label", `${panel.title} over the last ${span((steps * data.step) / 1000)}: ${empty ? "nothing yet" : "now " + said}`);
  }

  /** Fills the table: with the values at the mark, or with those of now. Returns the summaries. */
  tell() {
    const { panel, data } = this;
    const marked = this.at !== null && this.at < data.steps;
    this.column.textContent = marked ? clock(data.begin + (this.at + 1) * data.step, data.step < 60000) : "now";
    this.bar.setAttribute("d", marked ? `M${this.place(this.at).toFixed(1)} ${TOP}V${150 - BELOW}` : "");
    this.note.textContent = panel.note ?? "";
    return this.series.map(({ values }, nth) => {
      const told = summary(values, panel, data.recent);
      const first = marked ? values[this.at] : told.now;
      [first, told.middle, told.most].forEach((value, column) => { this.rows[nth].cells[column].textContent = panel.say(value); });
      return told;
    });
  }

  mark(at) {
    if (!this.data || at === this.at) return;
    this.at = at;
    this.tell();
  }

  point(event) {
    if (!this.data) return;
    const box = this.picture.getBoundingClientRect();
    const at = Math.round(((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * this.data.steps) - 1;
    this.mark(at < 0 || at >= this.data.steps ? null : at);
  }

  key(event) {
    if (!this.data) return;
    const last = this.data.steps - 1;
    const far = event.shiftKey ? Math.ceil(last / 20) : 1;
    const at = this.at ?? last + 1;
    const to = { ArrowLeft: Math.max(at - far, 0), ArrowRight: Math.min(at + far, last), Home: 0, End: last, Escape: null };
    if (!(event.key in to)) return;
    event.preventDefault();
    this.mark(to[event.key]);
  }
}
