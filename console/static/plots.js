// Plots of series over time. The server's JSON: {times (ms), series: [{name, unit, values}],
// incidents: [{from, to, kind}]}. A value that is null is a gap, and is drawn as one. What a plot
// shows is also said in a sentence and written in a table. Names come from strangers: text only.

import { timeText, wantsUtc } from "./times.js";

const REFRESH_MS = 5_000;
const HEIGHT = 240;
const TABLE_ROWS = 60;
const COLOURS = ["--accent", "--catching-up", "--down", "--good", "--disconnected", "--hatch"];
const POWERS = Array.from({ length: 62 }, (_none, power) => 2 ** power);
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Draw every plot of the page, and keep it up to date. */
export async function drawPlots() {
  await loadUplot();
  for (const figure of document.querySelectorAll("[data-plot]")) new Plot(figure).start();
}

function loadUplot() {
  return new Promise((done, fail) => {
    const script = document.createElement("script");
    script.src = new URL("vendor/uPlot.iife.min.js", import.meta.url);
    script.addEventListener("load", done);
    script.addEventListener("error", () => fail(new Error("uPlot cannot be loaded")));
    document.head.append(script);
  });
}

class Plot {
  constructor(figure) {
    this.figure = figure;
    this.url = figure.dataset.plot;
    this.title = figure.querySelector("figcaption").textContent;
    this.summary = figure.querySelector(".plot-summary");
    this.canvas = document.createElement("div");
    this.canvas.className = "canvas";
    this.legend = document.createElement("ul");
    this.legend.className = "legend";
    this.details = document.createElement("details");
    this.details.append(element("summary", "Figures"), document.createElement("div"));
    this.summary.before(this.canvas, this.legend);
    figure.append(this.details);
    this.chart = null;
    this.data = null;
    this.shape = "";
  }

  start() {
    const again = () => this.draw();
    dark.addEventListener("change", again);
    document.addEventListener("zonechange", again);
    this.details.addEventListener("toggle", () => this.fillTable());
    new ResizeObserver(() => this.chart?.setSize(this.size())).observe(this.canvas);
    document.addEventListener("visibilitychange", () => document.hidden || this.load());
    this.load();
    setInterval(() => document.hidden || this.load(), REFRESH_MS);
  }

  async load() {
    try {
      const answer = await fetch(this.url, { headers: { Accept: "application/json" } });
      const data = await answer.json();
      if (!answer.ok) throw new Error(data.error ?? `the console answered ${answer.status}`);
      this.data = data;
      this.show();
    } catch (error) {
      this.summary.textContent = `Not up to date: ${error.message}`;
    }
  }

  show() {
    const shape = JSON.stringify(this.data.series.map((one) => [one.name, one.unit]));
    if (this.chart === null || shape !== this.shape) {
      this.shape = shape;
      this.draw();
    } else {
      this.chart.setData(this.columns());
    }
    this.summary.textContent = summaryOf(this.data);
    this.canvas.firstChild?.setAttribute("aria-label", `${this.title}. ${this.summary.textContent}`);
    this.fillTable();
  }

  columns() {
    return [this.data.times, ...this.data.series.map((one) => one.values)];
  }

  size() {
    return { width: Math.max(this.canvas.clientWidth, 200), height: HEIGHT };
  }

  draw() {
    if (this.data === null) return;
    this.chart?.destroy();
    this.chart = new window.uPlot(this.options(), this.columns(), this.canvas);
    this.chart.root.setAttribute("role", "img");
    this.chart.root.setAttribute("aria-label", `${this.title}. ${summaryOf(this.data)}`);
    this.fillLegend();
  }

  options() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const units = [...new Set(this.data.series.map((one) => one.unit))];
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const scales = { x: {} };
    for (const unit of units) scales[unit] = { range: (_u, _low, high) => [0, high > 0 ? high * 1.08 : 1] };
    return {
      ...this.size(),
      ms: 1,
      tzDate: (ms) => (wantsUtc() ? window.uPlot.tzDate(new Date(ms), "UTC") : new Date(ms)),
      legend: { show: false },
      cursor: { drag: { x: true, y: false } },
      scales,
      axes: [
        { ...axis, space: 80, values: (_u, ticks, _at, _space, step) => ticks.map((ms) => tickText(ms, step)) },
        ...units.map((unit, index) => ({
          ...axis,
          scale: unit,
          ...(unit === "bytes" ? { incrs: POWERS } : {}),
          side: index ? 1 : 3,
          size: 74,
          grid: index ? { show: false } : axis.grid,
          values: (_u, ticks) => ticks.map((value) => valueText(value, unit)),
        })),
      ],
      series: [{}, ...this.data.series.map((one, index) => line(one, index, colour))],
      hooks: { drawClear: [(chart) => shadeIncidents(chart, this.data.incidents, colour("--shade"))] },
    };
  }

  fillLegend() {
    const colours = this.data.series.map((_one, index) => COLOURS[index % COLOURS.length]);
    const entries = this.data.series.map((one, index) => {
      const mark = element("span", "");
      mark.className = "mark";
      mark.style.borderTopColor = `var(${colours[index]})`;
      mark.style.borderTopStyle = dashOf(index).length ? "dashed" : "solid";
      return entry(mark, one.name);
    });
    if (this.data.incidents.length) {
      const mark = element("span", "");
      mark.className = "mark incident";
      entries.push(entry(mark, "incident"));
    }
    this.legend.replaceChildren(...entries);
  }

  fillTable() {
    if (this.details.open) this.details.lastChild.replaceChildren(tableOf(this.title, this.data));
  }
}

function line(one, index, colour) {
  return {
    label: one.name,
    scale: one.unit,
    stroke: colour(COLOURS[index % COLOURS.length]),
    dash: dashOf(index),
    width: 1.6,
    spanGaps: false,
    // A sample between two gaps has no line to either side: it is a point.
    points: { size: 4, filter: (chart, at) => alone(chart.data[at]) },
  };
}

function dashOf(index) {
  return DASHES[Math.floor(index / COLOURS.length) % DASHES.length];
}

function alone(values) {
  const found = [];
  values.forEach((value, at) => {
    if (value != null && values[at - 1] == null && values[at + 1] == null) found.push(at);
  });
  return found;
}

function shadeIncidents(chart, incidents, colour) {
  const { ctx, bbox } = chart;
  ctx.save();
  ctx.fillStyle = colour;
  for (const one of incidents) {
    const left = Math.max(chart.valToPos(one.from, "x", true), bbox.left);
    const right = Math.min(chart.valToPos(one.to, "x", true), bbox.left + bbox.width);
    if (right >= left) ctx.fillRect(left, bbox.top, Math.max(right - left, 2), bbox.height);
  }
  ctx.restore();
}

// -- in words ---------------------------------------------------------------------------------

const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/** A tick of the time axis: as much of the time as tells it from its neighbours. */
function tickText(ms, stepMs) {
  const text = timeText(ms);
  if (stepMs >= 86_400_000) return text.slice(0, 10);
  return stepMs >= 60_000 ? text.slice(11, 16) : text.slice(11, 19);
}

function valueText(value, unit) {
  if (value == null) return "–";
  if (unit !== "bytes") return `${Number(value.toPrecision(4))} ${unit}`.trim();
  let step = 0;
  while (Math.abs(value) >= 1024 && step < BINARY.length - 1) {
    value /= 1024;
    step += 1;
  }
  return `${Number(value.toPrecision(4))} ${BINARY[step]}`;
}

function summaryOf({ times, series, incidents }) {
  if (!series.length || !times.length) return "Nothing is known of this time.";
  const parts = series.slice(0, 8).map((one) => seriesText(one, times));
  if (series.length > 8) parts.push(`${series.length - 8} more are in the figures.`);
  if (incidents.length) {
    const kinds = [...new Set(incidents.map((one) => one.kind))].slice(0, 5).join(", ");
    parts.push(`${incidents.length} incident${incidents.length === 1 ? "" : "s"}: ${kinds}.`);
  }
  return parts.join(" ");
}

function seriesText({ name, unit, values }, times) {
  let highest = -1;
  let gaps = 0;
  values.forEach((value, at) => {
    if (value == null) gaps += at === 0 || values[at - 1] != null;
    else if (highest < 0 || value > values[highest]) highest = at;
  });
  if (highest < 0) return `${name}: nothing known.`;
  const gapsText = gaps ? `, ${gaps} gap${gaps === 1 ? "" : "s"}` : "";
  return (
    `${name}: now ${valueText(values.at(-1), unit)}, ` +
    `highest ${valueText(values[highest], unit)} at ${timeText(times[highest])}${gapsText}.`
  );
}

function tableOf(title, { times, series }) {
  const box = document.createElement("div");
  box.className = "scroll";
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `Figures of ${title}`);
  const table = box.appendChild(document.createElement("table"));
  const head = table.createTHead().insertRow();
  for (const text of ["Time", ...series.map((one) => one.name)]) {
    head.append(Object.assign(element("th", text), { scope: "col" }));
  }
  const body = table.createTBody();
  const first = Math.max(times.length - TABLE_ROWS, 0);
  for (let at = times.length - 1; at >= first; at -= 1) {
    const row = body.insertRow();
    row.append(Object.assign(element("th", timeText(times[at])), { scope: "row" }));
    for (const one of series) row.insertCell().textContent = valueText(one.values[at], one.unit);
  }
  return box;
}

function entry(mark, text) {
  const item = document.createElement("li");
  item.append(mark, text);
  return item;
}

function element(name, text) {
  return Object.assign(document.createElement(name), { textContent: text });
}
