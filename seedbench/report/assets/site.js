"use strict";
(() => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("seedbench-theme"); } catch { return null; } };
  const store = theme => { try { localStorage.setItem("seedbench-theme", theme); } catch { /* the choice lasts for this page */ } };
  if (["dark", "light"].includes(stored())) root.dataset.theme = stored();

  function toggleTheme(button) {
    const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
    const name = () => { button.textContent = current() === "dark" ? "Light colours" : "Dark colours"; };
    button.addEventListener("click", () => {
      root.dataset.theme = current() === "dark" ? "light" : "dark";
      store(root.dataset.theme);
      name();
    });
    dark.addEventListener("change", name);
    name();
    button.hidden = false;
  }

  function element(tag, properties = {}, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  // A cell's key: the number in data-value, or its text. Cells without a value come last either way.
  const texts = new Intl.Collator(undefined, { numeric: true });
  function key(cell) {
    const value = cell?.dataset.value;
    if (value === undefined) return cell?.textContent.trim() || null;
    return value === "" || Number.isNaN(Number(value)) ? null : Number(value);
  }

  function compare(a, b, sign) {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * (typeof a === "number" && typeof b === "number" ? a - b : texts.compare(a, b));
  }

  // What is shown of a table: the rows that fit the filter, as many as fit its window (data-window), in their order.
  function view(table) {
    const size = Number(table.dataset.window) || Infinity;
    const count = element("span", { className: "count", role: "status" });
    const more = element("button", { type: "button", hidden: true });
    const state = { table, count, fits: () => true, filtered: false, rows: [], limit: size };
    state.read = () => { state.rows = Array.from(table.tBodies).flatMap(body => Array.from(body.rows)); };
    state.show = () => {
      let fitting = 0;
      for (const row of state.rows) {
        const visible = state.fits(row) && ++fitting <= state.limit;
        if (row.hidden === visible) row.hidden = !visible;
      }
      const whole = number => number.toLocaleString("en");
      count.textContent = state.filtered ? `${whole(fitting)} of ${whole(state.rows.length)}` : "";
      more.hidden = fitting <= state.limit;
      if (!more.hidden) more.textContent = `Show ${whole(Math.min(size, fitting - state.limit))} more of ${whole(fitting - state.limit)}`;
    };
    more.addEventListener("click", () => { state.limit += size; state.show(); });
    (table.closest(".scroll") || table).after(more);
    state.restart = () => { state.limit = size; state.show(); };
    state.read();
    state.show();
    return state;
  }

  function sortBy(state, column, sign) {
    for (const body of state.table.tBodies) {
      const keyed = Array.from(body.rows, row => [key(row.cells[column]), row]);
      keyed.sort((a, b) => compare(a[0], b[0], sign));
      const sorted = document.createDocumentFragment();
      for (const [, row] of keyed) sorted.append(row);
      body.append(sorted);
    }
    state.read();
    state.restart();
  }

  function makeSortable(state) {
    const { table } = state;
    const heads = Array.from(table.tHead.rows[table.tHead.rows.length - 1].cells);
    heads.forEach((head, column) => {
      if (head.tagName !== "TH") return;
      const button = element("button", { type: "button" }, ...head.childNodes);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const first = table.tBodies[0]?.rows[0]?.cells[column]?.dataset.value === undefined ? "ascending" : "descending";
        const opposite = { ascending: "descending", descending: "ascending" };
        const order = opposite[head.getAttribute("aria-sort")] || first;
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        sortBy(state, column, order === "ascending" ? 1 : -1);
      });
    });
  }

  // A search box, and a choice for every column whose head has data-filter.
  function makeFilterable(state) {
    const { table } = state;
    const text = (row, column) => row.cells[column]?.textContent.trim();
    const search = element("input", { type: "search" });
    const choices = Array.from(table.querySelectorAll("thead th[data-filter]"), head => {
      const values = Array.from(new Set(state.rows.map(row => text(row, head.cellIndex)))).sort(texts.compare);
      const select = element("select", {}, new Option("all", ""), ...values.map(value => new Option(value, value)));
      return { column: head.cellIndex, select, label: element("label", {}, `${head.textContent.trim()} `, select) };
    });
    const labels = [element("label", {}, "Filter ", search), ...choices.map(choice => choice.label)];
    (table.closest(".scroll") || table).before(element("div", { className: "controls" }, ...labels, state.count));
    const known = new Map();
    const lower = row => known.get(row) ?? known.set(row, row.textContent.toLowerCase()).get(row);
    let waiting;
    const apply = () => {
      clearTimeout(waiting);
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = choices.filter(({ select }) => select.selectedIndex > 0);
      state.filtered = words.length + wanted.length > 0;
      state.fits = row => wanted.every(({ column, select }) => text(row, column) === select.value)
        && words.every(word => lower(row).includes(word));
      state.restart();
    };
    search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 120); });
    for (const { select } of choices) select.addEventListener("change", apply);
    addEventListener("pageshow", apply);  // a browser that comes back to the page restores what was entered
  }

  // A link to an episode opens it.
  function reveal() {
    const target = document.getElementById(location.hash.slice(1));
    const article = target?.closest("article");
    if (!article) return;
    article.querySelector("details").open = true;
    article.scrollIntoView();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    if (button) toggleTheme(button);
    for (const table of document.querySelectorAll("table.data")) {
      const state = view(table);
      if (table.matches("[data-filterable]")) makeFilterable(state);
      if (table.matches("[data-sortable]")) makeSortable(state);
    }
    reveal();
    addEventListener("hashchange", reveal);
  });
})();
