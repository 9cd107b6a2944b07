// Shows the streams of all scopes, a page at a time, with live rates of those on the page.

import { problemNotices, repeat } from "./cluster_page.js";
import { button, card, element, notice, stateMark, table } from "./dom.js";
import { ago, count, rate } from "./format.js";
import { Rates } from "./rates.js";
import { ask, listen, path } from "./server.js";
import { Tiles } from "./tiles.js";

const typingPauseMs = 250;

/** @param {string} scope @param {string} stream */
export function streamLink(scope, stream) {
  return element("a", { href: `#/stream/${encodeURIComponent(scope)}/${encodeURIComponent(stream)}` }, `${scope}/${stream}`);
}

/** @param {HTMLElement} main @param {string[]} _parts @param {URLSearchParams} query @param {AbortSignal} signal */
export async function showStreams(main, _parts, query, signal) {
  document.title = "Streams";
  const search = element("input", { type: "search", "aria-label": "Search", placeholder: "Part of scope/stream", value: query.get("search") ?? "" });
  const internal = element("input", { type: "checkbox" });
  const found = element("div", { "aria-live": "polite" });
  const problems = element("div");
  const tiles = new Tiles(["Cluster", "Stores", "Containers", "Controllers"]);
  const label = element("label", {}, internal, " the system's own");
  main.replaceChildren(
    element("h1", {}, "Streams"),
    problems,
    tiles.node,
    element("form", { class: "bar", role: "search" }, element("div", { class: "grow" }, search), label),
    found,
  );
  const look = () => showHealth(problems, tiles, signal);
  look();
  repeat(look, signal);
  let shown = new AbortController();
  const show = async (token = "", before = []) => {
    shown.abort();
    shown = new AbortController();
    const both = AbortSignal.any([signal, shown.signal]);
    await showPage(found, { search: search.value.trim(), internal: internal.checked, token }, both, (next) => turn(next, [...before, token]), before.length ? () => turn(before.at(-1), before.slice(0, -1)) : null);
  };
  const turn = async (token = "", before = []) => {
    try {
      await show(token, before);
    } catch (error) {
      // The page that was shown is not followed any more.
      if (!signal.aborted && error.name !== "AbortError") found.replaceChildren(notice(error.message, true), button("Try again", () => turn(token, before)));
    }
  };
  let timer;
  search.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(turn, typingPauseMs);
  });
  main.querySelector("form").addEventListener("submit", (event) => event.preventDefault());
  internal.addEventListener("change", () => turn());
  await show();
}

/** @param {HTMLElement} problems @param {Tiles} tiles @param {AbortSignal} signal problems first, and the cluster in four figures */
async function showHealth(problems, tiles, signal) {
  try {
    const found = await ask(path("cluster"), signal);
    problems.replaceChildren(...problemNotices(found));
    tiles.set("Cluster", found.problems.length || found.status !== "UP" ? found.status.toLowerCase() : "well");
    tiles.set("Stores", count(found.stores.length + found.storesLeftOut));
    tiles.set("Containers", count(found.containerCount), found.ownerless.length ? `${count(found.ownerless.length)} without a store` : "");
    tiles.set("Controllers", count(found.controllers?.length));
  } catch (error) {
    if (!signal.aborted) problems.replaceChildren(notice(error.message, true));
  }
}

/**
 * @param {HTMLElement} place
 * @param {{search: string, internal: boolean, token: string}} wanted
 * @param {AbortSignal} signal
 * @param {(token: string) => void} following
 * @param {(() => void) | null} previous
 */
async function showPage(place, wanted, signal, following, previous) {
  const query = new URLSearchParams({ search: wanted.search, internal: String(wanted.internal), token: wanted.token });
  const page = await ask(`${path("streams")}?${query}`, signal);
  if (signal.aborted) return;
  const rates = new Map();
  const rows = page.streams.map((row) => {
    const cells = { rate: element("span", {}, "…"), state: element("span", {}, row.state ? stateMark(row.state) : row.unknown ?? ""), segments: element("span", {}, count(row.segmentCount)), epoch: element("span", {}, count(row.epoch)) };
    rates.set(`${row.scope}/${row.stream}`, cells);
    return [streamLink(row.scope, row.stream), cells.state, cells.rate, cells.segments, cells.epoch, row.scaling, row.retention, ago(row.createdMs), row.tags.join(", ")];
  });
  const columns = [{ title: "Stream" }, { title: "State" }, { title: "Written", isNumber: true }, { title: "Segments", isNumber: true }, { title: "Epoch", isNumber: true }, { title: "Scaling" }, { title: "Retention" }, { title: "Created" }, { title: "Tags" }];
  const turn = element("div", { class: "bar" });
  if (previous) turn.append(button("← Before", previous));
  if (page.next) turn.append(button(page.streams.length ? "More →" : "Search on →", () => following(page.next)));
  if (wanted.search && page.next) turn.append(element("span", { class: "soft small" }, `${count(page.namesLookedAt)} names were looked at.`));
  place.replaceChildren(rows.length ? card("", table(columns, rows, "Streams")) : emptyText(wanted, page), turn);
  const names = page.streams.filter((row) => !row.unknown).map((row) => `${row.scope}/${row.stream}`);
  if (names.length) follow(names, rates, signal);
}

function emptyText(wanted, page) {
  if (wanted.search || wanted.token) return element("p", { class: "card empty" }, page.next ? "None among the names that were looked at so far." : `No stream has “${wanted.search}” in its name.`);
  return element(
    "div",
    { class: "card empty" },
    element("p", {}, "There are no streams yet."),
    element("p", {}, "Make one and write to it: ", element("code", {}, "pravega-spark stream create SCOPE/STREAM"), " and ", element("code", {}, "pravega-spark event write SCOPE/STREAM < FILE"), "."),
  );
}

function follow(names, cells, signal) {
  const rates = new Rates();
  const lost = () => {
    for (const row of cells.values()) row.rate.textContent = "not known";
  };
  const take = (looks) => {
    for (const look of looks.streams) {
      const row = cells.get(`${look.scope}/${look.stream}`);
      if (row === undefined) continue;
      const { total } = rates.take(look);
      row.rate.textContent = look.unknown ? "not known" : total === null ? "…" : rate(total);
      row.rate.title = look.unknown ?? "";
      row.state.replaceChildren(stateMark(look.state));
      row.segments.textContent = count(look.segmentCount);
      row.epoch.textContent = count(look.epoch);
    }
  };
  listen(`${path("live", "streams")}?${new URLSearchParams({ names: names.join(",") })}`, signal, take, lost);
}
