// Asks the controller, and listens to it.

import { noteTime } from "./clock.js";

/** @param {...string} parts of a path; each is encoded */
export function path(...parts) {
  return ["/v1/window", ...parts.map(encodeURIComponent)].join("/");
}

const silenceMaxMs = 15_000;
const retryPauseMs = 5_000;

/** A text as the status line of an error gives it. `isLasting`: asking again would not help. */
export class Refused extends Error {
  constructor(text, isLasting = false) {
    super(`${text.charAt(0).toUpperCase()}${text.slice(1)}.`);
    this.isLasting = isLasting;
  }
}

/**
 * @param {string} url
 * @param {AbortSignal} signal
 * @returns {Promise<any>} the answer's JSON; rejects with `Refused` otherwise
 */
export async function ask(url, signal) {
  let answer;
  try {
    answer = await fetch(url, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new Refused("The controller does not answer. Is it running? Its log says why not");
  }
  noteTime(answer);
  if (!answer.ok) throw new Refused(answer.statusText || String(answer.status), answer.status < 500);
  return answer.json();
}

/**
 * Hands over each event of a live answer until the signal ends it. Browsers connect again by themselves; what was
 * refused is tried again here.
 * @param {string} url
 * @param {AbortSignal} signal
 * @param {(data: any) => void} take
 * @param {() => void} lost what came before is old now: nothing comes, or nothing came for a while
 */
export function listen(url, signal, take, lost) {
  const state = document.getElementById("liveness");
  const say = (text) => {
    if (!signal.aborted && state.textContent !== text) state.textContent = text;
  };
  let source;
  let timer;
  let silence;
  const heard = (isLive) => {
    clearTimeout(silence);
    if (isLive) silence = setTimeout(() => heard(false), silenceMaxMs);
    else if (!signal.aborted) {
      say("not live: the controller is asked again");
      lost();
    }
  };
  const open = () => {
    source = new EventSource(url);
    source.onmessage = (event) => {
      say("● live");
      heard(true);
      take(JSON.parse(event.data));
    };
    source.onerror = () => {
      heard(false);
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, retryPauseMs);
    };
  };
  signal.addEventListener("abort", () => {
    source.close();
    clearTimeout(timer);
    clearTimeout(silence);
    state.textContent = "";
  });
  heard(true);
  open();
}
