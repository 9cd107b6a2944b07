// Makes rates and fills of the figures that stores send with their leases, and shows them.

import { card, element, table } from "./dom.js";
import { count, rate, size, span } from "./format.js";
import { Tiles } from "./tiles.js";

/**
 * @typedef {{atMs: number, loggedBytes: number, readBytes: number, tier2PutBytes: number, unflushedBytes: number,
 *   unflushedBytesMax: number, tier1UsedBytes: number, tier1BytesMax: number, cacheBytes: number, cacheBytesMax: number,
 *   connections: number}} Load
 * @typedef {{id: string, load?: Load}} Store
 * @typedef {{written: number | null, read: number | null, flushed: number | null}} StoreRates bytes a second
 */

const counters = { written: "loggedBytes", read: "readBytes", flushed: "tier2PutBytes" };
const oldMs = 30_000;

export class StoreRates {
  constructor() {
    /** @type {Map<string, {before: Load | null, last: Load}>} the two newest figures of each store */
    this.known = new Map();
  }

  /** @param {Store[]} stores */
  take(stores) {
    const next = new Map();
    for (const { id, load } of stores) {
      if (load === undefined) continue;
      const had = this.known.get(id);
      if (had === undefined) next.set(id, { before: null, last: load });
      else next.set(id, load.atMs > had.last.atMs ? { before: had.last, last: load } : had);
    }
    this.known = next;
  }

  /** @param {string} id @returns {StoreRates} null for what two figures do not tell: a container that moved takes its count along */
  of(id) {
    const { before, last } = this.known.get(id) ?? { before: null };
    const made = (name) => (before === null || last[name] < before[name] ? null : ((last[name] - before[name]) * 1000) / (last.atMs - before.atMs));
    return Object.fromEntries(Object.entries(counters).map(([key, name]) => [key, made(name)]));
  }
}

/** @param {Store[]} stores @param {StoreRates} rates @param {number} nowMs the controller's clock */
export function loadCard(stores, rates, nowMs) {
  const told = stores.filter((store) => store.load !== undefined);
  if (!told.length) return null;
  const tiles = new Tiles(["Written", "Read", "To Tier 2", "Fullest Tier 1", "Waits for Tier 2"]);
  tiles.set("Written", rate(total(told, rates, "written")));
  tiles.set("Read", rate(total(told, rates, "read")));
  tiles.set("To Tier 2", rate(total(told, rates, "flushed")));
  const fullest = told.map((store) => share(store.load.tier1UsedBytes, store.load.tier1BytesMax)).filter((one) => one !== null);
  tiles.set("Fullest Tier 1", fullest.length ? percent(Math.max(...fullest)) : "–", "of its memory");
  tiles.set("Waits for Tier 2", size(told.reduce((sum, store) => sum + store.load.unflushedBytes, 0)));
  const columns = ["Store", "Written", "Read", "To Tier 2", "Waits for Tier 2", "Tier 1", "Cache", "Connections", "As of"].map((title, index) => ({ title, isNumber: index > 0 }));
  return card("Work of the stores", tiles.node, table(columns, told.map((store) => row(store, rates, nowMs)), "Work of the segment stores"));
}

function row({ id, load }, rates, nowMs) {
  const { written, read, flushed } = rates.of(id);
  const age = nowMs - load.atMs;
  return [
    id,
    rate(written),
    rate(read),
    rate(flushed),
    fill(load.unflushedBytes, load.unflushedBytesMax, "waits for Tier 2"),
    load.tier1UsedBytes || load.tier1BytesMax ? fill(load.tier1UsedBytes, load.tier1BytesMax, "of Tier 1's memory") : "–",
    fill(load.cacheBytes, load.cacheBytesMax, "of the cache"),
    count(load.connections),
    age > oldMs ? element("strong", {}, `${span(age)} ago`) : `${span(age)} ago`,
  ];
}

function total(stores, rates, key) {
  const known = stores.map((store) => rates.of(store.id)[key]);
  return known.includes(null) ? null : known.reduce((sum, one) => sum + one, 0);
}

/** @returns {number | null} null without a limit */
function share(used, limit) {
  return limit ? used / limit : null;
}

function percent(part) {
  return `${Math.round(part * 100)} %`;
}

/** @param {number} used @param {number} limit 0 for none @param {string} what for screen readers */
function fill(used, limit, what) {
  const part = share(used, limit);
  if (part === null) return size(used);
  const meter = element("meter", { min: 0, max: 1, high: 0.8, optimum: 0, value: Math.min(1, part), "aria-label": `${percent(part)} ${what}` });
  return element("span", { class: "fill" }, meter, ` ${size(used)} of ${size(limit)}`);
}
