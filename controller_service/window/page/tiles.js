// Shows a few figures side by side.

import { element } from "./dom.js";

export class Tiles {
  constructor(names) {
    this.values = new Map(names.map((name) => [name, element("dd", {}, "…")]));
    this.node = element("dl", { class: "tiles" }, ...names.map((name) => element("div", { class: "tile" }, element("dt", {}, name), this.values.get(name))));
  }

  set(name, value, more = "") {
    this.values.get(name).replaceChildren(value, more ? element("small", {}, ` ${more}`) : "");
  }
}
