// Asks the controller, and listens to it.

/** @param {...string} parts of a path; each is encoded */
export function path(...parts) {
  return ["/v1/window", ...parts.map(encodeURIComponent)].join("/");
}

/** A text as the status line of an error gives it. */
export class Refused extends Error {}

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
    throw new Refused("The controller does not answer. Is it running? Its log says why not.");
  }
  if (!answer.ok) throw new Refused(`${answer.statusText || answer.status}.`);
  return answer.json();
}

/**
 * Hands over each event of a live answer until the signal ends it. Browsers connect again by themselves; what was
 * refused is tried again here.
 * @param {string} url
 * @param {AbortSignal} signal
 * @param {(data: any) => void} take
 */
export function listen(url, signal, take) {
  const state = document.getElementById("liveness");
  const say = (text) => {
    if (!signal.aborted && state.textContent !== text) state.textContent = text;
  };
  let source;
  let timer;
  const open = () => {
    source = new EventSource(url);
    source.onmessage = (event) => {
      say("● live");
      take(JSON.parse(event.data));
    };
    source.addEventListener("failed", (event) => say(`not live: ${event.data}`));
    source.onerror = () => {
      say("not live: the controller is asked again");
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(open, 5000);
    };
  };
  signal.addEventListener("abort", () => {
    source.close();
    clearTimeout(timer);
    state.textContent = "";
  });
  open();
}
