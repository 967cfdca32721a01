// A table with sortable columns, a filter and pages; rows are kept by key while their values change.

import { h, sync, text, attribute } from "./dom.js";

export class Table {
  /**
   * @param columns {id, title, number?, hint?, sort?(row), show(row, cell)}: `show` returns text, or changes the cell itself
   * @param options `key(row)`, `order` [id, descending], `page` rows at once, `empty` text, `label` for screen readers
   */
  constructor(parent, columns, { key, order = null, page = 25, empty = "", label }) {
    Object.assign(this, { columns, key, order, page, at: 0, rows: [], matches: null, nothing: empty });
    this.heads = columns.map((column) => {
      const title = column.sort ? h("button", { type: "button", onclick: () => this.sortBy(column.id) }, column.title) : column.title;
      return h("th", { scope: "col", class: column.number ? "number" : null, title: column.hint }, title);
    });
    this.body = h("tbody");
    this.empty = h("p", { class: "empty" }, "loading …"); // until the first `set` nobody knows whether there is nothing
    this.before = h("button", { type: "button", onclick: () => this.turn(-1) }, "‹ before");
    this.after = h("button", { type: "button", onclick: () => this.turn(1) }, "next ›");
    this.where = h("span");
    this.pages = h("div", { class: "pages" }, this.before, this.where, this.after);
    const table = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.scroller = h("div", { class: "scroller", tabindex: "-1" }, table);
    parent.replaceChildren(this.scroller, this.empty, this.pages);
    this.draw();
  }

  set(rows) {
    this.rows = rows;
    text(this.empty, this.nothing);
    this.draw();
  }

  filter(matches) {
    this.matches = matches;
    this.at = 0;
    this.draw();
  }

  sortBy(id) {
    const number = this.columns.find((column) => column.id === id).number;
    this.order = this.order && this.order[0] === id ? [id, !this.order[1]] : [id, Boolean(number)];
    this.at = 0;
    this.draw();
  }

  turn(pages) {
    this.at += pages * this.page;
    this.draw();
  }

  draw() {
    let rows = this.matches ? this.rows.filter(this.matches) : this.rows;
    const sorted = this.order && this.columns.find((column) => column.id === this.order[0]);
    if (sorted) {
      const sign = this.order[1] ? -1 : 1;
      rows = rows.map((row, place) => [sorted.sort(row), place, row])
        .sort((a, b) => sign * (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0) || a[1] - b[1]).map((entry) => entry[2]);
    }
    this.at = Math.max(0, Math.min(this.at, Math.floor((rows.length - 1) / this.page) * this.page));
    const shown = rows.slice(this.at, this.at + this.page);
    this.columns.forEach((column, index) => {
      const order = sorted === column ? (this.order[1] ? "descending" : "ascending") : null;
      attribute(this.heads[index], "aria-sort", order);
    });
    sync(this.body, shown, this.key, () => h("tr", {}, this.columns.map((column) => h("td", { class: column.number ? "number" : null }))), (element, row) => {
      this.columns.forEach((column, index) => {
        const cell = element.children[index];
        const value = column.show(row, cell);
        if (value !== undefined) text(cell, value);
      });
    });
    this.empty.hidden = rows.length > 0;
    this.scroller.hidden = rows.length === 0;
    this.pages.hidden = rows.length <= this.page;
    text(this.where, `${this.at + 1} to ${this.at + shown.length} of ${rows.length}`);
    this.before.disabled = this.at === 0;
    this.after.disabled = this.at + this.page >= rows.length;
  }
}

/** A bar with its text in a cell; made once, then changed. */
export function gauge(cell, share, label, hint = "") {
  if (!cell.firstElementChild) {
    cell.append(h("div", { class: "gauge" }, h("span", { class: "meter", "aria-hidden": "true" }, h("i")), h("span")));
  }
  const [meter, words] = cell.firstElementChild.children;
  meter.style.visibility = share === null ? "hidden" : "visible";
  meter.firstElementChild.style.width = `${(100 * Math.min(1, share || 0)).toFixed(1)}%`;
  meter.classList.toggle("hot", share !== null && share > 0.9);
  text(words, label);
  attribute(cell, "title", hint || null);
}
