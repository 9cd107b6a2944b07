// Shows one stream: figures, the picture of its keys over its epochs, and what writes and reads it.

import { controllerNowMs } from "./clock.js";
import { card, element, facts, notice, stateMark, table } from "./dom.js";
import { ago, count, counted, moment, rate, size, span } from "./format.js";
import { Trends, behind, furthest, lagNotices, subscribersCard, watermarkCard } from "./lag.js";
import { StreamDrawing } from "./picture.js";
import { Rates } from "./rates.js";
import { ask, listen, path } from "./server.js";
import { Tiles } from "./tiles.js";

const usePeriodMs = 5_000;
const factsPeriodMs = 10_000;

/** @param {HTMLElement} main @param {string[]} parts scope and stream @param {URLSearchParams} _query @param {AbortSignal} signal */
export async function showStream(main, [scope, stream], _query, signal) {
  document.title = `${scope}/${stream}`;
  const own = path("scopes", scope, "streams", stream);
  const found = await ask(own, signal);
  const page = new StreamPage(own, signal);
  const events = element("a", { href: `#/events/${encodeURIComponent(scope)}/${encodeURIComponent(stream)}` }, "Look at its events");
  main.replaceChildren(element("h1", {}, `${scope}/${stream}`), element("p", {}, events), page.tiles.node, page.problems, page.lagProblems, page.drawing.node, page.details, page.use);
  page.showFacts(found);
  signal.addEventListener("abort", () => page.drawing.end());
  await Promise.all([page.draw(null, null), page.showUse()]);
  page.repeat(() => page.showUse(), usePeriodMs);
  page.repeat(async () => page.showFacts(await ask(own, signal)), factsPeriodMs);
  const rates = new Rates();
  listen(path("live", "scopes", scope, "streams", stream), signal, (look) => page.takeLook(look, rates.take(look)), () => page.lose());
}

class StreamPage {
  constructor(own, signal) {
    this.own = own;
    this.signal = signal;
    this.tiles = new Tiles(["State", "Written now", "Size", "Open segments", "Open transactions", "Waiting commits", "Furthest behind"]);
    this.problems = element("div");
    this.lagProblems = element("div");
    this.trends = new Trends();
    this.details = element("div", { class: "columns" });
    this.use = element("div", { class: "columns" });
    this.span = [null, null];
    this.drawing = new StreamDrawing((first, last) => this.draw(first, last).catch((error) => this.refuse(error)));
    this.epoch = null;
  }

  refuse(error) {
    if (!this.signal.aborted) this.problems.replaceChildren(notice(error.message, true));
  }

  repeat(work, periodMs) {
    const timer = setInterval(() => document.visibilityState === "visible" && work().catch((error) => this.refuse(error)), periodMs);
    this.signal.addEventListener("abort", () => clearInterval(timer));
  }

  async draw(first, last) {
    this.span = [first, last];
    const query = new URLSearchParams(Object.entries({ first, last }).filter(([, value]) => value !== null));
    const picture = await ask(`${this.own}/picture?${query}`, this.signal);
    if (this.span[0] === first && this.span[1] === last) this.drawing.show(picture);
  }

  showFacts(found) {
    const opened = this.details.querySelector("details[open]") !== null;
    this.epoch ??= found.currentEpoch;
    this.tiles.set("State", stateMark(found.state));
    this.tiles.set("Size", size(found.sizeBytes));
    this.tiles.set("Open segments", count(found.segmentCount), `epoch ${count(found.currentEpoch)}`);
    this.problems.replaceChildren(...found.unknown.map((text) => notice(text)));
    const rolled = found.oldestEpoch > 0 ? `epochs before ${found.oldestEpoch} are forgotten` : "all epochs are on record";
    this.details.replaceChildren(
      card(
        "Configuration",
        facts([
          ["Scaling", found.scaling],
          ["Retention", found.retention],
          ["Tags", found.tags.join(", ")],
          ["History", `${counted(found.splits, "split")}, ${counted(found.merges, "merge")}; ${rolled}`],
          ["Scaling now", found.scalingToEpoch === undefined ? null : `to epoch ${found.scalingToEpoch}`],
          ["Held by", found.holder],
        ]),
      ),
      card(
        "Head and tail",
        facts([
          ["Head", found.head ? cut(found.head) : "the beginning: nothing was truncated"],
          ["Tail", found.tail ? cut(found.tail) : "not known now"],
          ["From head to tail", size(found.sizeBytes)],
          ["Cuts for retention", found.retentionCuts ? `${count(found.retentionCuts)}, the last one ${ago(found.lastRetentionCutMs)}` : "none yet"],
        ]),
      ),
    );
    for (const folded of this.details.querySelectorAll("details")) folded.open = opened;
  }

  showLag(lag) {
    this.trends.take(lag);
    this.lagProblems.replaceChildren(...lagNotices(lag, this.trends));
    this.tiles.set("Furthest behind", ...furthest(lag));
  }

  async showUse() {
    const [use, lag] = await Promise.all([ask(`${this.own}/use`, this.signal), ask(`${this.own}/lag`, this.signal)]);
    this.showLag(lag);
    const subscribers = new Map(lag.subscribers.map((one) => [one.name, one]));
    const { transactions } = use;
    this.tiles.set("Open transactions", more(transactions.open, transactions.isPartial), transactions.oldestOpenMs ? `oldest ${span(controllerNowMs() - transactions.oldestOpenMs)}` : "");
    this.tiles.set("Waiting commits", count(transactions.waiting), transactions.blocked ? "standing still" : "");
    const round = transactions.round;
    this.use.replaceChildren(
      card(
        "Transactions and commit rounds",
        transactions.blocked ? notice(`Commits stand still: ${transactions.blocked}. “pravega-spark stream transaction list” shows what is lost; then abort it, or accept the loss.`, true) : null,
        facts([
          ["Open", more(transactions.open, transactions.isPartial)],
          ["Committing", more(transactions.committing, transactions.isPartial)],
          ["Aborting", more(transactions.aborting, transactions.isPartial)],
          ["In the commit order", count(transactions.waiting)],
          ["Round under way", round ? `${counted(round.transactions, "transaction")} of epoch ${round.epoch}${round.isRolling ? ", begun before a scaling" : ""}, for ${span(controllerNowMs() - round.startedMs)}` : "none"],
        ]),
      ),
      card("Sinks", sinks(use.sinks), ...use.unknown.filter((text) => text.startsWith("Sinks")).map((text) => element("p", { class: "soft small" }, text))),
      card("Reader groups", groups(use.groups, (name) => subscribers.get(`${lag.scope}/${name}`)), ...use.unknown.filter((text) => text.startsWith("Reader")).map((text) => element("p", { class: "soft small" }, text))),
      subscribersCard(lag, this.trends),
      ...[watermarkCard(lag)].filter((one) => one !== null),
    );
  }

  /** What was live is old now. */
  lose() {
    this.tiles.set("Written now", "not known");
    this.drawing.showLive(new Map());
  }

  takeLook(look, rates) {
    this.tiles.set("State", stateMark(look.state));
    this.tiles.set("Written now", look.unknown ? "not known" : rates.total === null ? "…" : rate(rates.total), look.unknown ?? "");
    this.tiles.set("Open segments", count(look.segmentCount), `epoch ${count(look.epoch)}`);
    this.drawing.showLive(rates.segments);
    if (look.epoch === this.epoch) return;
    this.epoch = look.epoch;
    const again = async () => {
      this.showFacts(await ask(this.own, this.signal));
      await this.draw(...this.span);
    };
    again().catch((error) => this.refuse(error));
  }
}

function more(number, isPartial) {
  return isPartial ? `${count(number)} or more` : count(number);
}

function cut(found) {
  const shown = found.positions.map((position) => `${position.id.split(".")[0]} at ${count(position.offset)}`).join(", ");
  const rest = found.segments - found.positions.length;
  const text = rest ? `${shown} and ${counted(rest, "further segment")}` : shown;
  if (found.positions.length <= 4) return text;
  return element("details", {}, element("summary", {}, counted(found.segments, "segment")), text);
}

function sinks(found) {
  if (!found.length) return element("p", { class: "soft" }, "None: no Spark query wrote to it with its last batch.");
  return table(
    [{ title: "Query" }, { title: "Name" }, { title: "Last batch", isNumber: true }, { title: "Events", isNumber: true }, { title: "Size", isNumber: true }, { title: "Transactions", isNumber: true }, { title: "Begun" }, { title: "Now" }],
    found.map((sink) => [element("code", {}, sink.queryId), sink.name, count(sink.lastBatch), count(sink.lastEvents), size(sink.lastBytes), count(sink.lastTransactions), sink.lastStartedMs ? element("span", { title: moment(sink.lastStartedMs) }, ago(sink.lastStartedMs)) : null, doing(sink)]),
    "Sinks",
  );
}

function doing(sink) {
  if (sink.pendingBatch !== undefined) return `deciding batch ${sink.pendingBatch}`;
  if (sink.openBatches) return `writing ${counted(sink.openBatches, "batch", "batches")}`;
  return sink.lastState === "finished" || sink.lastState === undefined ? "idle" : `batch is ${sink.lastState}`;
}

/** @param {(name: string) => object | undefined} subscriber that of a group */
function groups(found, subscriber) {
  if (!found.length) return element("p", { class: "soft" }, "None of this scope reads it.");
  return table(
    [{ title: "Group" }, { title: "Behind", isNumber: true }, { title: "State" }, { title: "Frees data" }, { title: "Streams", isNumber: true }],
    found.map((group) => [group.name, behind(subscriber(group.name)), group.state, group.retention === "none" ? "never" : group.retention, count(group.streams)]),
    "Reader groups",
  );
}
