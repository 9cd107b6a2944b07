// Shows how the cluster is: problems first, then stores with their containers, controllers, and moves since the page opened.

import { card, element, facts, notice, table } from "./dom.js";
import { count, counted, span } from "./format.js";
import { ask, path } from "./server.js";
import { StoreRates, loadCard } from "./store_loads.js";

const periodMs = 3_000;
const movesMax = 50;

/** @param {{problems: {text: string, remedy: string, stopsWork: boolean}[], unknown?: string}} found */
export function problemNotices(found) {
  const known = found.problems.map((problem) => notice(`${capital(problem.text)}. To do: ${problem.remedy}.`, problem.stopsWork));
  return found.unknown ? [...known, notice(found.unknown)] : known;
}

/** @param {() => Promise<void>} work @param {AbortSignal} signal repeats it until then, while the page is seen */
export function repeat(work, signal) {
  const timer = setInterval(() => document.visibilityState === "visible" && work(), periodMs);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** @param {HTMLElement} main @param {string[]} _parts @param {URLSearchParams} _query @param {AbortSignal} signal */
export async function showCluster(main, _parts, _query, signal) {
  document.title = "Cluster";
  const problems = element("div");
  const body = element("div");
  const moves = new Moves();
  const rates = new StoreRates();
  const show = (found) => {
    problems.replaceChildren(...problemNotices(found));
    rates.take(found.stores);
    const work = loadCard(found.stores, rates, found.atMs);
    body.replaceChildren(...(work ? [work] : []), ...cards(found), moves.seen(found));
  };
  show(await ask(path("cluster"), signal));
  main.replaceChildren(element("h1", {}, "Cluster"), problems, body);
  repeat(async () => {
    try {
      show(await ask(path("cluster"), signal));
    } catch (error) {
      if (!signal.aborted) problems.replaceChildren(notice(`${error.message} What is below is from before.`, true));
    }
  }, signal);
}

function cards(found) {
  const stores = found.stores.map((store) => [store.id, store.address, count(store.containers.length), containers(store.containers), store.failures.map((one) => `container ${one.container}: ${one.reason ?? "no reason given"}`).join("; ")]);
  const columns = [{ title: "Store" }, { title: "Address" }, { title: "Containers", isNumber: true }, { title: "Which" }, { title: "Stopped by themselves" }];
  const ill = Object.entries(found.services).filter(([, state]) => state !== "UP");
  return [
    card("Segment stores", stores.length ? table(columns, stores, "Segment stores") : element("p", { class: "soft" }, "None has a lease."), found.storesLeftOut ? element("p", { class: "soft small" }, `${counted(found.storesLeftOut, "further store")} are left out.`) : null),
    card(
      "Controllers",
      facts([
        ["Live", found.controllers ? found.controllers.join(", ") || "none" : "not known now"],
        ["This one", `${found.status.toLowerCase()}, version ${found.version}`],
        ["Its parts", ill.length ? ill.map(([name, state]) => `${name} is ${state.toLowerCase()}`).join(", ") : `all ${Object.keys(found.services).length} are up`],
        ["Containers", `${count(found.containerCount)}, assignment ${count(found.assignmentVersion)}`],
        ["Without a store", found.ownerless.length ? containers(found.ownerless) : "none"],
      ]),
      element("p", { class: "soft small" }, "More about each store is at its own /metrics and /health."),
    ),
  ];
}

/** @param {number[]} numbers in order @returns {string} with runs joined */
export function containers(numbers) {
  const runs = [];
  for (const number of numbers) {
    const last = runs.at(-1);
    if (last !== undefined && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

class Moves {
  constructor() {
    this.owners = null;
    this.moves = [];
  }

  seen(found) {
    const now = new Map(found.stores.flatMap((store) => store.containers.map((number) => [number, store.id])));
    if (this.owners !== null) {
      for (let number = 0; number < found.containerCount; number += 1) {
        const [from, to] = [this.owners.get(number), now.get(number)];
        if (from !== to) this.moves.unshift({ number, from, to, atMs: found.atMs });
      }
    }
    this.owners = now;
    this.moves.length = Math.min(this.moves.length, movesMax);
    const rows = this.moves.map((move) => [`Container ${move.number}`, move.from ?? "no store", move.to ?? "no store", `${span(found.atMs - move.atMs)} ago`]);
    return card("Moves", rows.length ? table([{ title: "Container" }, { title: "From" }, { title: "To" }, { title: "Seen" }], rows, "Moves of containers") : element("p", { class: "soft" }, "None since this page was opened."));
  }
}

function capital(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
