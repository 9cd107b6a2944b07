// Makes elements. Texts become text nodes, never markup, so that no name and no event can add any.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} attributes those that are null or false are left out
 * @param {...(Node | string | null | undefined)} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/**
 * @param {string} tag
 * @param {Record<string, string | number | boolean | null | undefined>} attributes
 * @param {...(Node | string | null | undefined)} children
 * @returns {SVGElement}
 */
export function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** @param {string} text @param {() => void} act @param {Record<string, string | boolean>} attributes */
export function button(text, act, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
}

/** @param {string} title @param {...(Node | string | null | undefined)} children a part of a page with a heading */
export function card(title, ...children) {
  return element("section", { class: "card" }, title ? element("h2", {}, title) : null, ...children);
}

/** @param {string} text @param {boolean} isBad */
export function notice(text, isBad = false) {
  return element("p", { class: isBad ? "notice bad" : "notice", role: isBad ? "alert" : "note" }, text);
}

/** @param {[string, Node | string | null | undefined][]} pairs a list of names and values; those without a value are left out */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
}

/**
 * @param {{title: string, isNumber?: boolean}[]} columns
 * @param {(Node | string | null | undefined)[][]} rows
 * @param {string} caption for screen readers
 */
export function table(columns, rows, caption) {
  const kinds = columns.map((column) => (column.isNumber ? "number" : null));
  const head = columns.map((column, index) => element("th", { scope: "col", class: kinds[index] }, column.title));
  const cells = (row) => row.map((value, index) => element("td", { class: kinds[index] ?? (index ? null : "name") }, value ?? "–"));
  return element(
    "div",
    { class: "table" },
    element(
      "table",
      {},
      element("caption", { class: "visually-hidden" }, caption),
      element("thead", {}, element("tr", {}, ...head)),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells(row)))),
    ),
  );
}

/** @param {string} name a state of a stream */
export function stateMark(name) {
  const kind = name === "active" || name === "sealed" ? name : "busy";
  return element("span", { class: `state ${kind}` }, name.replaceAll("_", " "));
}
