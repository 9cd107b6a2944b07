// Shows how far those who read a stream are behind its tail, and whether that grows.

import { card, element, facts, notice, table } from "./dom.js";
import { ago, counted, moment, rate, size } from "./format.js";

/**
 * @typedef {{name: string, updatedMs?: number, behindBytes?: number, unknown?: string}} Subscriber
 * @typedef {{atMs: number, subscribers: Subscriber[], leftOut: number, watermark?: {lowerTime: number, upperTime: number, writtenMs: number}, problems: {text: string, remedy: string}[], unknown: string[]}} Lag
 */

/** Distances are compared over this time at most. */
const windowMs = 120_000;
const [msOf2000, msOf2100] = [946_684_800_000, 4_102_444_800_000];
/** A distance that grows for this long is a problem. */
const growingMs = 60_000;

/**
 * The growth of distances, from one answer to the next. A reader goes on in jumps, so the least distances of the two
 * halves of the time are compared, not single ones.
 */
export class Trends {
  constructor() {
    /** @type {Map<string, {atMs: number, bytes: number}[]>} */
    this.looks = new Map();
  }

  /** @param {Lag} lag */
  take(lag) {
    const known = lag.subscribers.filter((one) => one.behindBytes !== undefined);
    this.looks = new Map(
      known.map((one) => {
        const kept = (this.looks.get(one.name) ?? []).filter((look) => lag.atMs - look.atMs <= windowMs && look.atMs < lag.atMs);
        return [one.name, [...kept, { atMs: lag.atMs, bytes: one.behindBytes }]];
      }),
    );
  }

  /** @param {string} name @returns {{growth: number, overMs: number} | null} bytes a second; null for what is not known yet */
  of(name) {
    const looks = this.looks.get(name) ?? [];
    const half = Math.floor(looks.length / 2);
    if (half < 2) return null;
    const [before, after] = [least(looks.slice(0, half)), least(looks.slice(half))];
    const overMs = looks.at(-1).atMs - looks[0].atMs;
    return { growth: ((after - before) * 2000) / overMs, overMs };
  }

  /** @param {string} name whether the distance of a subscriber has grown for a while */
  falls(name) {
    const trend = this.of(name);
    return trend !== null && trend.overMs >= growingMs && trend.growth > 0;
  }
}

function least(looks) {
  return Math.min(...looks.map((look) => look.bytes));
}

/** @param {Lag} lag @param {Trends} trends @returns {HTMLElement[]} what somebody should look after */
export function lagNotices(lag, trends) {
  const found = lag.problems.map((problem) => notice(`${problem.text.charAt(0).toUpperCase()}${problem.text.slice(1)}. To do: ${problem.remedy}.`));
  const isNamed = (one) => lag.problems.some((problem) => problem.text.includes(`subscriber ${one.name} `));
  const falling = lag.subscribers.filter((one) => trends.falls(one.name) && !isNamed(one));
  return [
    ...found,
    ...falling.map((one) => notice(`Subscriber ${one.name} falls behind by ${rate(trends.of(one.name).growth)}: more is written than it reads. To do: give its query or readers more cores or larger batches, or look for what slows them down.`)),
    ...lag.unknown.map((text) => notice(text)),
  ];
}

/** @param {Lag} lag @param {Trends} trends */
export function subscribersCard(lag, trends) {
  if (!lag.subscribers.length) return card("Subscribers", element("p", { class: "soft" }, "None: no query or reader group holds retention back."));
  const rows = lag.subscribers.map((one) => [one.name, behind(one), trend(trends.of(one.name)), told(one.updatedMs)]);
  return card(
    "Subscribers",
    table([{ title: "Query or reader group" }, { title: "Behind", isNumber: true }, { title: "Trend" }, { title: "Position told" }], rows, "Subscribers"),
    lag.leftOut ? element("p", { class: "soft small" }, `${counted(lag.leftOut, "further subscriber")}, who told their positions since, are left out.`) : null,
  );
}

/** @param {Subscriber | undefined} one */
export function behind(one) {
  return one === undefined || one.behindBytes === undefined ? (one?.unknown ?? "it tells no position") : size(one.behindBytes);
}

function trend(found) {
  if (found === null) return "…";
  if (found.growth === 0) return "steady";
  return found.growth > 0 ? `grows by ${rate(found.growth)}` : `shrinks by ${rate(-found.growth)}`;
}

function told(updatedMs) {
  return updatedMs ? element("span", { title: moment(updatedMs) }, ago(updatedMs)) : null;
}

/** @param {Lag} lag @returns {HTMLElement | null} */
export function watermarkCard(lag) {
  if (lag.watermark === undefined) return null;
  const { lowerTime, upperTime, writtenMs } = lag.watermark;
  return card(
    "Watermark",
    facts([
      ["Written", element("span", { title: moment(writtenMs) }, ago(writtenMs))],
      ["Event time from", noted(lowerTime)],
      ["Event time to", noted(upperTime)],
    ]),
  );
}

/** Writers note what times they like; nearly all note milliseconds since 1970. */
function noted(time) {
  return time >= msOf2000 && time < msOf2100 ? moment(time) : String(time);
}

/** @param {Lag} lag @returns {[string, string]} the greatest distance that is known, and whose it is */
export function furthest(lag) {
  const known = lag.subscribers.filter((one) => one.behindBytes !== undefined).sort((one, other) => other.behindBytes - one.behindBytes);
  if (known.length) return [size(known[0].behindBytes), known[0].name];
  return lag.subscribers.length ? ["not known", ""] : ["–", "no subscriber"];
}
