// Shows the page that the address names, and ends what the page before it was doing.

import { problemNotices, showCluster } from "./cluster_page.js";
import { element, notice } from "./dom.js";
import { showEvents } from "./events_page.js";
import { ask, path, Refused } from "./server.js";
import { showStream } from "./stream_page.js";
import { showStreams } from "./streams_page.js";

/** @type {Record<string, (main: HTMLElement, parts: string[], query: URLSearchParams, signal: AbortSignal) => Promise<void>>} */
const pages = { "": showStreams, cluster: showCluster, events: showEvents, stream: showStream };

const retryPauseMs = 5_000;

let current = new AbortController();

/** @param {string[]} parts @returns {string[]} as they are where one is not encoded as it should be */
function decoded(parts) {
  try {
    return parts.map(decodeURIComponent);
  } catch {
    return [parts.join("/")];
  }
}

/** Says what is wrong with the cluster, as far as that is known, and shows the page again after a while. */
async function againLater(main, signal) {
  try {
    main.append(...problemNotices(await ask(path("cluster"), signal)));
  } catch (error) {
    if (!(error instanceof Refused)) return;
  }
  main.append(element("p", { class: "soft" }, "It is tried again every few seconds."));
  setTimeout(() => !signal.aborted && show(), retryPauseMs);
}

async function show() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const [address, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = decoded(address.split("/"));
  const main = document.getElementById("main");
  main.replaceChildren(element("p", { class: "soft" }, "Loading …"));
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    const isCurrent = link.dataset.page === (name || "streams");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const page = Object.hasOwn(pages, name) ? pages[name] : undefined;
  if (page === undefined) {
    main.replaceChildren(notice("There is no such page."));
    return;
  }
  try {
    await page(main, parts, new URLSearchParams(query), signal);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof Refused)) {
      main.replaceChildren(notice(`This page failed: ${error}`, true));
      throw error;
    }
    main.replaceChildren(notice(error.message, true));
    if (!error.isLasting) await againLater(main, signal);
  }
}

window.addEventListener("hashchange", show);
show();
