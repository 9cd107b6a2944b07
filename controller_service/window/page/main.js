// Shows the page that the address names, and ends what the page before it was doing.

import { showCluster } from "./cluster_page.js";
import { element, notice } from "./dom.js";
import { showEvents } from "./events_page.js";
import { Refused } from "./server.js";
import { showStream } from "./stream_page.js";
import { showStreams } from "./streams_page.js";

/** @type {Record<string, (main: HTMLElement, parts: string[], query: URLSearchParams, signal: AbortSignal) => Promise<void>>} */
const pages = { "": showStreams, cluster: showCluster, events: showEvents, stream: showStream };

let current = new AbortController();

async function show() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const [address, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = address.split("/").map(decodeURIComponent);
  const main = document.getElementById("main");
  main.replaceChildren(element("p", { class: "soft" }, "Loading …"));
  for (const link of document.querySelectorAll("nav a[data-page]")) {
    const isCurrent = link.dataset.page === (name || "streams");
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const page = pages[name];
  if (page === undefined) {
    main.replaceChildren(notice("There is no such page."));
    return;
  }
  try {
    await page(main, parts, new URLSearchParams(query), signal);
  } catch (error) {
    if (signal.aborted) return;
    main.replaceChildren(notice(error instanceof Refused ? error.message : `This page failed: ${error}`, true));
    if (!(error instanceof Refused)) throw error;
  }
}

window.addEventListener("hashchange", show);
show();
