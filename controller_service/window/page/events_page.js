// Shows events of one segment at a time: the newest, the oldest, or those from an offset, a time or a stream cut on.

import { button, card, element, notice } from "./dom.js";
import { bytesOf, formats } from "./event_text.js";
import { count, counted, size } from "./format.js";
import { ask, path } from "./server.js";

const segmentsMax = 1_000;

/** @param {HTMLElement} main @param {string[]} parts scope and stream @param {URLSearchParams} query @param {AbortSignal} signal */
export async function showEvents(main, [scope, stream], query, signal) {
  document.title = `Events of ${scope}/${stream}`;
  const own = path("scopes", scope, "streams", stream);
  const picture = await ask(`${own}/picture`, signal);
  const page = new EventsPage(own, signal, picture, query.get("segment"));
  const back = element("a", { href: `#/stream/${encodeURIComponent(scope)}/${encodeURIComponent(stream)}` }, `${scope}/${stream}`);
  main.replaceChildren(element("h1", {}, "Events of ", back), page.form, page.found);
  await page.read("tail");
}

class EventsPage {
  constructor(own, signal, picture, wanted) {
    this.own = own;
    this.signal = signal;
    const readable = picture.segments.filter((one) => one.fate !== "truncated").slice(0, segmentsMax);
    const options = readable.map((one) => element("option", { value: one.id, selected: one.id === wanted }, `${one.id.split(".")[0]} of epoch ${one.id.split(".")[1]}, ${one.fate}`));
    this.segment = element("select", {}, ...options);
    this.format = element("select", {}, ...Object.keys(formats).map((name) => element("option", { value: name }, name === "json" ? "JSON" : name)));
    this.offset = element("input", { type: "number", min: "0", step: "1", value: "0" });
    this.time = element("input", { type: "datetime-local", step: "1" });
    this.cut = element("input", { type: "text", placeholder: "Text of a stream cut" });
    this.filter = element("input", { type: "search", placeholder: "Part of a shown event" });
    this.found = element("div", { "aria-live": "polite" });
    this.reads = 0;
    const read = (start) => () => this.read(start);
    this.form = element(
      "form",
      { class: "bar" },
      element("label", {}, "Segment ", this.segment),
      button("Newest", read("tail")),
      button("Oldest", read("head")),
      element("label", {}, "Offset ", this.offset),
      button("From there", read("offset")),
      element("label", {}, "Time, UTC ", this.time),
      button("From then", read("time")),
      element("label", {}, "Cut ", this.cut),
      button("From the cut", read("cut")),
      element("label", {}, "As ", this.format),
      element("label", {}, "With ", this.filter),
    );
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.segment.addEventListener("change", read("tail"));
    this.format.addEventListener("change", () => this.show());
    this.filter.addEventListener("input", () => this.show());
  }

  /** The answer to the last question alone is shown: others may come later. @param {string} start @param {number} offset */
  async read(start, offset = Number(this.offset.value)) {
    const turn = (this.reads += 1);
    const timeMs = Date.parse(`${this.time.value}Z`);
    if (start === "time" && Number.isNaN(timeMs)) return this.refuse("Give the time from which on events are wanted.");
    const query = new URLSearchParams({ segment: this.segment.value, start, offset });
    if (start === "time") query.set("timeMs", timeMs);
    if (start === "cut") query.set("cut", this.cut.value.trim());
    try {
      const page = await ask(`${this.own}/events?${query}`, this.signal);
      if (turn !== this.reads) return;
      this.page = page;
      this.show();
    } catch (error) {
      if (!this.signal.aborted && turn === this.reads) this.refuse(error.message);
    }
  }

  /** Says why there is nothing to show; what was shown before is of another question. @param {string} text */
  refuse(text) {
    this.page = undefined;
    this.found.replaceChildren(notice(text, true));
  }

  show() {
    if (this.page === undefined) return;
    const { events, startOffset, length, next, unknown } = this.page;
    const form = formats[this.format.value];
    const texts = events.map((event) => form(bytesOf(event.data), event.shown === event.length));
    const wanted = this.filter.value.toLowerCase();
    const kept = events.map((event, index) => ({ event, text: texts[index] })).filter((one) => one.text.toLowerCase().includes(wanted));
    const told = `${counted(kept.length, "event")}${wanted ? ` of ${count(events.length)}` : ""}. The segment has offsets ${count(startOffset)} to ${count(length)}.`;
    const more = button("Next →", () => this.read("offset", next), { disabled: next >= length });
    this.found.replaceChildren(card("", unknown ? notice(`${unknown}.`) : null, element("p", { class: "soft small" }, told), ...kept.map(({ event, text }) => shown(event, text)), more));
  }
}

function shown(event, text) {
  const cut = event.shown < event.length ? `, the first ${size(event.shown)} of it` : "";
  return element("article", { class: "event" }, element("p", { class: "soft small" }, `Offset ${count(event.offset)}, ${size(event.length)}${cut}`), element("pre", {}, text));
}
