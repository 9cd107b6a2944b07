// Draws a stream's key space over its epochs: a rectangle for each segment, epochs or time to the right, keys upwards.

import { controllerNowMs } from "./clock.js";
import { button, card, drawn, element, notice } from "./dom.js";
import { count, counted, moment, rate, size, span } from "./format.js";

/**
 * @typedef {{epoch: number, createdMs: number, segments: number, splits: number, merges: number, isDuplicate: boolean}} Column
 * @typedef {{id: string, firstColumn: number, lastColumn: number, keyStart: number, keyEnd: number, fate: string,
 *   createdMs: number, endedMs?: number, bytes?: number, startOffset?: number}} Segment
 * @typedef {{oldestEpoch: number, currentEpoch: number, epochs: Column[], segments: Segment[], fold: number,
 *   leftOut: number, unknown?: string}} Picture
 */

const levels = 7;
const margin = { left: 34, right: 132, top: 20, bottom: 24 };
const denseSide = 5;
const tinySide = 1.6;
const dragMin = 12;
/** Of all segments; rates above that of this part of them share the darkest colour. */
const darkFrom = 0.95;
const labelRoom = 64;
const zoomColumns = 10;

/** @param {Segment} segment @param {number} nowMs @returns {number | null} its mean, in bytes a second */
export function meanRate(segment, nowMs) {
  const end = segment.endedMs ?? (segment.fate === "active" ? nowMs : null);
  if (end === null || segment.bytes === undefined || end <= segment.createdMs) return null;
  return (segment.bytes * 1000) / (end - segment.createdMs);
}

/** @param {number | null} value @param {number} highest @returns {number | null} 0 to 6: each level is half of the one above */
export function level(value, highest) {
  if (value === null) return null;
  if (value <= 0 || highest <= 0) return 0;
  return Math.max(1, Math.min(levels - 1, levels - 1 + Math.ceil(Math.log2(value / highest))));
}

/** @param {(number | null)[]} rates @returns {number} the rate that has the darkest colour; 0 if none is known */
export function darkRate(rates) {
  const known = rates.filter((one) => one !== null && one > 0).sort((left, right) => left - right);
  return known.length ? known[Math.min(known.length - 1, Math.floor(known.length * darkFrom))] : 0;
}

/**
 * @param {Column[]} columns
 * @param {boolean} byTime
 * @param {number} width
 * @param {number} nowMs the end of the last column, in time
 * @returns {number[]} the edges of the columns, one more than there are columns
 */
export function columnEdges(columns, byTime, width, nowMs) {
  if (!byTime) return Array.from({ length: columns.length + 1 }, (_, index) => (index * width) / columns.length);
  const first = columns[0].createdMs;
  const whole = Math.max(1, nowMs - first);
  return [...columns.map((column) => ((column.createdMs - first) / whole) * width), width];
}

export class StreamDrawing {
  /** @param {(first: number | null, last: number | null) => void} zoom shows these epochs; null for all */
  constructor(zoom) {
    this.zoom = zoom;
    this.byTime = false;
    /** @type {Picture | null} */
    this.picture = null;
    this.live = new Map();
    this.chosen = -1;
    /** The keys that are shown. */
    this.keys = { low: 0, high: 1 };
    this.svg = drawn("svg", { tabindex: "0", role: "group" });
    this.help = element("p", { id: "picture-help", class: "visually-hidden" }, "Arrow keys choose a segment, Enter zooms in on it, Escape shows all.");
    this.svg.setAttribute("aria-describedby", "picture-help");
    this.text = element("p", { class: "chosen-text", "aria-live": "polite" });
    this.notes = element("div");
    this.controls = element("div", { class: "bar" });
    this.place = element("div", { class: "picture" }, this.svg);
    this.dark = element("span");
    this.node = card("Keys over epochs", this.controls, this.notes, this.place, this.help, legend(this.dark), this.text);
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
    this.svg.addEventListener("pointermove", (event) => this.move(event));
    this.svg.addEventListener("pointerup", (event) => this.release(event));
    this.resized = new ResizeObserver(() => this.draw());
    this.resized.observe(this.place);
  }

  /** @param {Picture} picture */
  show(picture) {
    const chosen = this.picture?.segments[this.chosen]?.id;
    this.picture = picture;
    this.atMs = controllerNowMs();
    this.chosen = picture.segments.findIndex((segment) => segment.id === chosen);
    this.showControls();
    this.draw();
  }

  /** @param {Map<string, number>} rates of the open segments, in bytes a second */
  showLive(rates) {
    this.live = rates;
    this.drawLive();
  }

  showControls() {
    const { epochs, oldestEpoch, currentEpoch, fold, leftOut, unknown } = this.picture;
    const first = epochs[0].epoch;
    const last = epochs.at(-1).epoch;
    const kind = (text, byTime) => button(text, () => this.turn(byTime), { "aria-pressed": String(this.byTime === byTime) });
    const wide = last - first;
    const { low, high } = this.keys;
    const whole = first <= oldestEpoch && last === currentEpoch && low === 0 && high === 1;
    const pan = (by) => this.zoom(Math.max(oldestEpoch, first + by), Math.min(currentEpoch, last + by));
    this.controls.replaceChildren(
      kind("By epoch", false),
      kind("By time", true),
      button("All", () => this.zoomOut(), { disabled: whole }),
      button("Last 20", () => this.zoom(Math.max(oldestEpoch, currentEpoch - 19), null), { disabled: currentEpoch - oldestEpoch < 20 }),
      button("← Older", () => pan(-Math.min(wide || 1, first - oldestEpoch)), { disabled: first <= oldestEpoch }),
      button("Newer →", () => pan(Math.min(wide || 1, currentEpoch - last)), { disabled: last === currentEpoch }),
      element("span", { class: "soft small" }, first === last ? `Epoch ${first}` : `Epochs ${first} to ${last}`, fold > 1 ? `, each ${ordinal(fold)} one` : "", low > 0 || high < 1 ? `, keys ${short(low)} to ${short(high)}` : "", ". Drag over a part to see it larger."),
    );
    const notes = [];
    if (leftOut > 0) notes.push(notice(`${counted(leftOut, "older epoch")} would make the picture too large. Show them with “← Older”, or drag over a part.`));
    if (unknown) notes.push(notice(`The lengths of open segments are not known now: ${unknown}.`));
    this.notes.replaceChildren(...notes);
  }

  zoomOut() {
    this.keys = { low: 0, high: 1 };
    this.zoom(null, null);
  }

  turn(byTime) {
    this.byTime = byTime;
    this.showControls();
    this.draw();
  }

  draw() {
    const { picture } = this;
    const width = this.place.clientWidth;
    const height = this.svg.clientHeight || 432;
    if (picture === null || !width) return;
    this.inner = { width: Math.max(60, width - margin.left - margin.right), height: height - margin.top - margin.bottom };
    const nowMs = this.ends = picture.epochs.at(-1).epoch === picture.currentEpoch ? this.atMs : this.lastMoment();
    this.edges = columnEdges(picture.epochs, this.byTime, this.inner.width, nowMs);
    const rates = picture.segments.map((segment) => meanRate(segment, this.atMs));
    const highest = darkRate(rates);
    this.rates = rates;
    this.dark.textContent = highest ? `mean rate, ${rate(highest)} and more is darkest, a step is half` : "mean rate";
    this.rectangles = picture.segments.map((segment, index) => this.rectangle(segment, index, level(rates[index], highest)));
    this.liveGroup = drawn("g", {});
    this.brush = drawn("rect", { class: "brush", y: margin.top, height: this.inner.height, width: 0, visibility: "hidden" });
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("aria-label", this.inWords());
    this.svg.replaceChildren(hatching(), this.axes(), drawn("g", {}, ...this.rectangles.filter((one) => one !== null)), this.turns(), this.liveGroup, this.brush);
    this.drawLive();
    this.mark();
  }

  lastMoment() {
    const ends = this.picture.segments.map((segment) => segment.endedMs ?? 0);
    return Math.max(this.picture.epochs.at(-1).createdMs + 1, ...ends);
  }

  /** Null for a segment whose keys are not shown. */
  rectangle(segment, index, tone) {
    const { low, high } = this.keys;
    if (segment.keyEnd <= low || segment.keyStart >= high) return null;
    const left = this.edges[segment.firstColumn];
    const right = this.edges[segment.lastColumn + 1];
    const { top, tall } = this.rows(segment);
    const kinds = ["segment", segment.fate, tone === null ? "unknown" : `rate-${tone}`];
    const side = Math.min(right - left, tall);
    if (side < denseSide) kinds.push(side < tinySide ? "tiny" : "dense");
    return drawn("rect", {
      class: kinds.join(" "),
      x: (margin.left + left).toFixed(2),
      width: Math.max(0.4, right - left).toFixed(2),
      y: top.toFixed(2),
      height: Math.max(0.4, tall).toFixed(2),
      "data-index": index,
    });
  }

  y(key) {
    const { low, high } = this.keys;
    const part = (Math.max(low, Math.min(high, key)) - low) / (high - low);
    return margin.top + (1 - part) * this.inner.height;
  }

  rows(segment) {
    const top = this.y(segment.keyEnd);
    return { top, tall: this.y(segment.keyStart) - top };
  }

  axes() {
    const { epochs } = this.picture;
    const bottom = margin.top + this.inner.height;
    const marks = drawn("g", { "aria-hidden": "true" });
    const { low, high } = this.keys;
    for (const part of [0, 0.25, 0.5, 0.75, 1]) {
      const key = low + part * (high - low);
      marks.append(drawn("text", { x: margin.left - 6, y: this.y(key) + 4, "text-anchor": "end" }, String(Number(key.toFixed(3)))));
      marks.append(drawn("line", { class: "grid", x1: margin.left, x2: margin.left + this.inner.width, y1: this.y(key), y2: this.y(key) }));
    }
    let free = -Infinity;
    epochs.forEach((column, index) => {
      const x = this.edges[index];
      if (x < free || x > this.inner.width - 20) return;
      free = x + labelRoom;
      const label = this.byTime ? moment(column.createdMs).slice(11, 19) : String(column.epoch);
      marks.append(drawn("text", { x: margin.left + x, y: bottom + 16 }, label));
      marks.append(drawn("line", { class: "axis", x1: margin.left + x, x2: margin.left + x, y1: bottom, y2: bottom + 4 }));
    });
    marks.append(drawn("text", { x: margin.left + this.inner.width + 8, y: bottom + 16 }, this.byTime ? "time →" : "epoch →"));
    return marks;
  }

  /** The marks of splits and merges above the columns. */
  turns() {
    const { epochs } = this.picture;
    const marks = drawn("g", { "aria-hidden": "true" });
    let free = -Infinity;
    epochs.forEach((column, index) => {
      const before = epochs[index - 1];
      if (before === undefined || this.edges[index] < free) return;
      const x = margin.left + this.edges[index];
      const [splits, merges] = [column.splits - before.splits, column.merges - before.merges];
      if (!splits && !merges) return;
      free = this.edges[index] + 7;
      if (splits) marks.append(drawn("path", { class: "split", d: `M${x} ${margin.top - 12}l4 7h-8z` }));
      if (merges) marks.append(drawn("path", { class: "merge", d: `M${x} ${margin.top - 3}l4 -7h-8z`, transform: splits ? `translate(0 -7)` : null }));
    });
    return marks;
  }

  /** The present rates of open segments, as bars at the right edge. */
  drawLive() {
    if (!this.liveGroup) return;
    const { picture } = this;
    const x = margin.left + this.inner.width;
    const room = margin.right - 14;
    const marks = [];
    const last = picture.epochs.length - 1;
    if (picture.epochs[last].epoch === picture.currentEpoch) {
      const open = picture.segments.filter((segment) => segment.fate === "active" && segment.lastColumn === last && segment.keyStart < this.keys.high && segment.keyEnd > this.keys.low);
      const most = Math.max(1, ...open.map((segment) => this.live.get(segment.id) ?? 0));
      let free = Infinity;
      for (const segment of [...open].sort((left, right) => left.keyStart - right.keyStart)) {
        const value = this.live.get(segment.id);
        const { top, tall } = this.rows(segment);
        const gap = Math.min(1, tall / 4);
        marks.push(drawn("line", { class: "open-edge", x1: x + 1, x2: x + 1, y1: top + gap, y2: top + tall - gap }));
        if (value === undefined) continue;
        marks.push(drawn("rect", { class: "now", x: x + 5, y: top + gap, width: ((value / most) * room * 0.45).toFixed(1), height: Math.max(0.3, tall - 2 * gap) }));
        const middle = top + tall / 2 + 4;
        if (tall >= 13 && free - middle >= 12) {
          marks.push(drawn("text", { x: x + 10 + room * 0.45, y: middle }, rate(value)));
          free = middle;
        }
      }
      marks.push(drawn("text", { x: x + 5, y: margin.top - 7 }, "written now"));
    }
    this.liveGroup.replaceChildren(...marks);
  }

  inWords() {
    const { epochs, segments } = this.picture;
    const open = segments.filter((segment) => segment.fate === "active").length;
    const last = epochs.at(-1);
    const [splits, merges] = [last.splits - epochs[0].splits, last.merges - epochs[0].merges];
    return `Key space over epochs ${epochs[0].epoch} to ${last.epoch}: ${counted(segments.length, "segment")}, ${open} open, ${counted(splits, "split")}, ${counted(merges, "merge")}.`;
  }

  // ---- choosing and zooming --------------------------------------------------------------------------------------

  choose(index) {
    if (index === this.chosen) return;
    this.rectangles[this.chosen]?.classList.remove("chosen");
    this.chosen = index;
    this.mark();
  }

  mark() {
    const chosen = this.rectangles?.[this.chosen];
    if (!chosen) {
      this.text.textContent = "Point at a segment, or go through them with the arrow keys.";
      return;
    }
    chosen.classList.add("chosen");
    chosen.parentNode.append(chosen);
    const segment = this.picture.segments[this.chosen];
    const [number, epoch] = segment.id.split(".");
    const parts = [
      `Segment ${number} of epoch ${epoch}, ${segment.fate}: keys ${short(segment.keyStart)} to ${short(segment.keyEnd)}`,
      `made ${moment(segment.createdMs)}`,
      segment.endedMs ? `open for ${this.picture.fold > 1 ? "at most " : ""}${span(segment.endedMs - segment.createdMs)}` : null,
      segment.bytes === undefined ? "length not known" : `${size(segment.bytes)} written`,
      segment.startOffset ? `${size(segment.startOffset)} of it truncated` : null,
      this.rates[this.chosen] === null ? null : `${rate(this.rates[this.chosen])} on average`,
      this.live.has(segment.id) ? `${rate(this.live.get(segment.id))} now` : null,
    ];
    this.text.textContent = `${parts.filter((part) => part !== null).join(" · ")}.`;
  }

  key(event) {
    if (this.picture === null) return;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
    if (event.key === "Escape") this.zoomOut();
    else if (event.key === "Enter" && this.chosen >= 0) this.zoomTo(this.picture.segments[this.chosen]);
    else if (steps[event.key]) this.step(...steps[event.key]);
    else return;
    event.preventDefault();
  }

  zoomTo(segment) {
    const { epochs } = this.picture;
    const first = epochs[Math.max(0, segment.firstColumn - zoomColumns)].epoch;
    const last = epochs[Math.min(epochs.length - 1, segment.lastColumn + zoomColumns)].epoch;
    const width = segment.keyEnd - segment.keyStart;
    this.keys = { low: Math.max(0, segment.keyStart - 2 * width), high: Math.min(1, segment.keyEnd + 2 * width) };
    this.zoom(first, last);
  }

  step(right, up) {
    const { segments, epochs } = this.picture;
    const from = segments[this.chosen];
    const column = from === undefined ? epochs.length - 1 : right > 0 ? from.lastColumn + 1 : right < 0 ? from.firstColumn - 1 : Math.min(from.lastColumn, epochs.length - 1);
    const key = from === undefined ? 0.5 : up > 0 ? from.keyEnd : up < 0 ? from.keyStart - 1e-9 : (from.keyStart + from.keyEnd) / 2;
    const found = segments.findIndex((one) => one.firstColumn <= column && column <= one.lastColumn && one.keyStart <= key && key < one.keyEnd);
    if (found >= 0) this.choose(found);
  }

  /** @returns {{column: number, key: number, x: number, y: number}} of a pointer */
  at(event) {
    const { left, top } = this.svg.getBoundingClientRect();
    const x = Math.max(0, Math.min(this.inner.width, event.clientX - left - margin.left));
    const y = Math.max(0, Math.min(this.inner.height, event.clientY - top - margin.top));
    const column = this.edges.findLastIndex((edge, index) => edge <= x && index < this.picture.epochs.length);
    const { low, high } = this.keys;
    return { column: Math.max(0, column), key: low + (1 - y / this.inner.height) * (high - low), x, y };
  }

  press(event) {
    if (this.picture === null || event.button !== 0) return;
    this.from = this.at(event);
    this.svg.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (this.picture === null) return;
    const index = event.target.dataset?.index;
    if (this.from === undefined) {
      if (index !== undefined) this.choose(Number(index));
      return;
    }
    const part = this.dragged(this.at(event));
    if (part === null) return;
    const shape = { x: margin.left + this.edges[part.first], width: this.edges[part.last + 1] - this.edges[part.first], y: this.y(part.high), height: this.y(part.low) - this.y(part.high), visibility: "visible" };
    for (const [name, value] of Object.entries(shape)) this.brush.setAttribute(name, String(value));
  }

  /** The part of the picture that a pointer went over: all keys if it went along, all columns if it went up or down. */
  dragged(to) {
    const { from, keys, picture } = this;
    const along = Math.abs(to.x - from.x) >= dragMin;
    const across = Math.abs(to.y - from.y) >= dragMin;
    if (!along && !across) return null;
    const [first, last] = along ? ordered(from.column, to.column) : [0, picture.epochs.length - 1];
    const [low, high] = across ? ordered(from.key, to.key) : [keys.low, keys.high];
    return { first, last, low, high };
  }

  release(event) {
    if (this.from === undefined) return;
    const part = this.dragged(this.at(event));
    this.from = undefined;
    this.brush.setAttribute("visibility", "hidden");
    if (part === null) return;
    const { epochs, fold, currentEpoch } = this.picture;
    this.keys = { low: part.low, high: part.high };
    this.zoom(epochs[part.first].epoch, Math.min(currentEpoch, epochs[part.last].epoch + fold - 1));
  }

  end() {
    this.resized.disconnect();
  }
}

function ordered(left, right) {
  return left <= right ? [left, right] : [right, left];
}

function short(key) {
  return String(Number(key.toFixed(6)));
}

function ordinal(number) {
  const tens = number % 100;
  const ending = tens > 10 && tens < 14 ? "th" : { 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th";
  return `${count(number)}${ending}`;
}

function hatching() {
  const lines = drawn("pattern", { id: "truncated", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" }, drawn("rect", { width: 6, height: 6, class: "hatch-back" }), drawn("line", { x1: 0, y1: 0, x2: 0, y2: 6, class: "hatch" }));
  return drawn("defs", {}, lines);
}

/** @param {Node} dark what the colours mean */
function legend(dark) {
  const box = (...marks) => drawn("svg", { viewBox: "0 0 18 13", "aria-hidden": "true" }, ...marks);
  const ramp = drawn("svg", { class: "ramp", viewBox: "0 0 98 13", "aria-hidden": "true" }, ...Array.from({ length: levels }, (_, tone) => drawn("rect", { class: `rate-${tone}`, x: tone * 14, width: 14, height: 13 })));
  return element(
    "p",
    { class: "legend" },
    element("span", {}, ramp, dark),
    element("span", {}, box(drawn("line", { class: "open-edge", x1: 9, x2: 9, y1: 0, y2: 13 })), "open"),
    element("span", {}, box(drawn("rect", { class: "segment sealed rate-3", width: 18, height: 13 })), "sealed"),
    element("span", {}, box(drawn("rect", { class: "segment truncated", width: 18, height: 13 })), "truncated"),
    element("span", {}, box(drawn("path", { class: "split", d: "M9 2l5 9h-10z" })), "split"),
    element("span", {}, box(drawn("path", { class: "merge", d: "M9 11l5 -9h-10z" })), "merge"),
  );
}
