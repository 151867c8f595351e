// The table of events: filters, sorts and pages what stands in the page as JSON. Names in it are anybody's: they become
// text nodes and nothing else.
(() => {
  "use strict";
  const element = (id) => document.getElementById(id);
  const data = JSON.parse(element("event-data").textContent);
  const { columns, kinds, runs, strings, rule_sets: ruleSets } = data;
  const total = columns.time.length;
  const collator = new Intl.Collator("en", { numeric: true });
  const number = new Intl.NumberFormat("en-US");
  const missing = "\u2013";
  const runId = 0, request = 1, parent = 2, model = 3;

  const make = (tag, text, className) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (className !== undefined) made.className = className;
    return made;
  };
  const named = (text) => make("bdi", text, "id");
  const name = (place) => (place === null ? null : strings[place]);
  const time = (row) => new Date(data.start + columns.time[row]).toISOString().replace("T", " ").replace("Z", "");
  const words = (kind) => kind.replaceAll("_", " ");

  // Filters

  const controls = {
    kind: element("filter-kind"), rule: element("filter-rule"), model: element("filter-model"),
    run: element("filter-run"), text: element("filter-text"),
  };
  const offer = (select, counts, label) => {
    const entries = [...counts.entries()].sort((one, other) => other[1] - one[1]);
    for (const [value, count] of entries) {
      const option = make("option", `${label(value)} (${number.format(count)})`);
      option.value = String(value);
      select.append(option);
    }
  };
  const counted = (values) => {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
    return counts;
  };
  const shortened = (text) => (text.length > 60 ? `${text.slice(0, 60)}\u2026` : text);
  offer(controls.kind, counted(columns.kind), (kind) => words(kinds[kind]));
  const ruleCounts = new Map();
  for (const [set, count] of counted(columns.rules)) {
    for (const rule of ruleSets[set]) ruleCounts.set(rule, (ruleCounts.get(rule) ?? 0) + count);
  }
  offer(controls.rule, ruleCounts, (rule) => shortened(strings[rule]));
  offer(controls.model, counted(columns.run.map((run) => runs[run][model] ?? -1)),
    (place) => (place === -1 ? "not named" : shortened(strings[place])));

  const kept = () => {
    const kind = controls.kind.value, rule = controls.rule.value, wanted = controls.model.value;
    const run = controls.run.value.trim().toLowerCase(), text = controls.text.value.trim().toLowerCase();
    // What a filter says of a run, or of a set of rules, is found out once and not for each row.
    const fits = text === "" ? null : strings.map((one) => one.toLowerCase().includes(text));
    const found = (place) => place !== null && fits[place];
    const goodRun = runs.map((one) =>
      (wanted === "" || String(one[model] ?? -1) === wanted) && (run === "" || one[runId].includes(run)));
    const textRun = fits && runs.map((one) =>
      one[runId].includes(text) || found(one[request]) || found(one[parent]) || found(one[model]));
    const goodSet = ruleSets.map((set) => rule === "" || set.includes(Number(rule)));
    const textSet = fits && ruleSets.map((set) => set.some(found));
    const rows = [];
    for (let row = 0; row < total; row++) {
      if (kind !== "" && String(columns.kind[row]) !== kind) continue;
      if (!goodRun[columns.run[row]] || !goodSet[columns.rules[row]]) continue;
      if (fits && !textRun[columns.run[row]] && !textSet[columns.rules[row]]) continue;
      rows.push(row);
    }
    return rows;
  };

  // Order

  const ranks = (texts) => {
    const order = texts.map((_, place) => place).sort((one, other) => collator.compare(texts[one], texts[other]));
    const rank = new Array(texts.length);
    order.forEach((place, position) => { rank[place] = position; });
    return rank;
  };
  const keyMakers = {
    time: () => (row) => columns.time[row],
    kind: () => (row) => columns.kind[row],
    what: () => { const rank = ranks(strings); return (row) => rank[columns.what[row]]; },
    rules: () => {
      const rank = ranks(ruleSets.map((set) => set.map((rule) => strings[rule]).join(", ")));
      return (row) => (ruleSets[columns.rules[row]].length ? rank[columns.rules[row]] : null);
    },
    model: () => {
      const rank = ranks(strings);
      return (row) => { const place = runs[columns.run[row]][model]; return place === null ? null : rank[place]; };
    },
    run: () => { const rank = ranks(runs.map((run) => run[runId])); return (row) => rank[columns.run[row]]; },
    step: () => (row) => columns.step[row],
    removed: () => (row) => columns.removed[row],
    rank: () => (row) => columns.rank[row],
  };
  const keys = {};
  const view = { sort: "time", falling: true, page: 0, rows: [] };
  const sorted = (rows) => {
    keys[view.sort] ??= keyMakers[view.sort]();
    const key = keys[view.sort], sign = view.falling ? -1 : 1;
    return rows.sort((one, other) => {
      const first = key(one), second = key(other);
      // What has no value comes last in both directions; equals stand in the order of the log, or its reverse.
      if (first === null || second === null) {
        return (first === null) - (second === null) || sign * (one - other);
      }
      return sign * (first - second || one - other);
    });
  };

  // Rows

  const body = element("event-table").tBodies[0];
  const described = (row) => {
    const run = runs[columns.run[row]];
    const set = ruleSets[columns.rules[row]];
    return [
      ["Time", `${time(row)} UTC`],
      ["Event", `number ${columns.number[row]} of run ${run[runId]}`],
      ["Request", name(run[request])],
      ["Parent", name(run[parent])],
      ["Model", name(run[model])],
      ["Rules", set.length ? set.map((rule) => strings[rule]).join(", ") : null],
      ["Sequence", columns.sequence[row]],
      ["Step", columns.step[row]],
      ["Probability removed", columns.removed[row]],
      ["Rank of the first token left", columns.rank[row]],
      ["What", strings[columns.what[row]]],
      ["Details", name(columns.detail[row])],
    ].filter(([, value]) => value !== null);
  };
  const details = (row) => {
    const line = make("tr", undefined, "detail"), cell = make("td"), list = make("dl");
    cell.colSpan = 10;
    for (const [term, value] of described(row)) {
      const content = make("dd");
      content.append(named(String(value)));
      list.append(make("dt", term), content);
    }
    const only = make("button", "Show only this run");
    only.type = "button";
    only.addEventListener("click", () => {
      controls.run.value = runs[columns.run[row]][runId];
      refilter();
      controls.run.focus();
    });
    const bar = make("div", undefined, "controls");
    bar.append(only);
    cell.append(list, bar);
    line.append(cell);
    return line;
  };
  const cellOf = (label, content, className) => {
    const cell = make("td", undefined, className);
    if (label !== null) cell.dataset.label = label;
    if (content === null) cell.classList.add("empty");
    cell.append(content === null ? missing : content);
    return cell;
  };
  const drawn = (row) => {
    const line = make("tr"), run = runs[columns.run[row]], set = ruleSets[columns.rules[row]];
    const toggle = make("button");
    toggle.type = "button";
    toggle.setAttribute("aria-expanded", "false");
    toggle.setAttribute("aria-label", `Details of event ${columns.number[row]} at ${time(row)}`);
    toggle.addEventListener("click", () => {
      const open = toggle.getAttribute("aria-expanded") === "true";
      toggle.setAttribute("aria-expanded", String(!open));
      if (open) line.nextElementSibling.remove();
      else line.after(details(row));
    });
    const removed = columns.removed[row], step = columns.step[row], sequence = columns.sequence[row];
    const place = sequence === null ? null : step === null ? String(sequence) : `${sequence}:${step}`;
    line.append(
      cellOf(null, toggle, "toggle"),
      cellOf("Time (UTC)", time(row), "when"),
      cellOf("Kind", words(kinds[columns.kind[row]]), "kind"),
      cellOf("What", named(shortened(strings[columns.what[row]]))),
      cellOf("Rules", set.length ? named(set.map((rule) => shortened(strings[rule])).join(", ")) : null),
      cellOf("Model", run[model] === null ? null : named(shortened(strings[run[model]]))),
      cellOf("Run", run[runId].slice(0, 8), "run"),
      cellOf("Step", place, "number"),
      cellOf("Removed", removed === null ? null : removed.toFixed(3), "number"),
      cellOf("Rank", columns.rank[row] === null ? null : String(columns.rank[row]), "number"),
    );
    return line;
  };

  const show = () => {
    const size = Number(element("page-size").value);
    const pages = Math.max(1, Math.ceil(view.rows.length / size));
    view.page = Math.min(Math.max(view.page, 0), pages - 1);
    const first = view.page * size, shown = view.rows.slice(first, first + size);
    if (shown.length) {
      body.replaceChildren(...shown.map(drawn));
    } else {
      const line = make("tr"), cell = make("td", "No event fits.");
      cell.colSpan = 10;
      line.append(cell);
      body.replaceChildren(line);
    }
    const range = shown.length ? `${number.format(first + 1)}\u2013${number.format(first + shown.length)} of ` : "";
    const of = view.rows.length === total ? "" : ` (of ${number.format(total)} in this table)`;
    element("status").textContent = `${range}${number.format(view.rows.length)} events${of}`;
    element("page-place").textContent = `page ${number.format(view.page + 1)} of ${number.format(pages)}`;
    for (const id of ["page-first", "page-previous"]) element(id).disabled = view.page === 0;
    for (const id of ["page-next", "page-last"]) element(id).disabled = view.page === pages - 1;
  };
  const refilter = () => { view.rows = sorted(kept()); view.page = 0; show(); };

  let waiting;
  for (const select of [controls.kind, controls.rule, controls.model]) select.addEventListener("change", refilter);
  for (const input of [controls.run, controls.text]) {
    input.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(refilter, 120); });
  }
  element("filter-reset").addEventListener("click", () => {
    for (const control of Object.values(controls)) control.value = "";
    refilter();
  });
  element("page-size").addEventListener("change", show);
  const turns = { first: () => 0, previous: () => view.page - 1, next: () => view.page + 1, last: () => Infinity };
  for (const [turn, page] of Object.entries(turns)) {
    element(`page-${turn}`).addEventListener("click", () => { view.page = page(); show(); });
  }
  for (const heading of document.querySelectorAll("#event-table th[data-sort]")) {
    heading.querySelector("button").addEventListener("click", () => {
      view.falling = view.sort === heading.dataset.sort ? !view.falling : false;
      view.sort = heading.dataset.sort;
      for (const other of document.querySelectorAll("#event-table th[aria-sort]")) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", view.falling ? "descending" : "ascending");
      view.rows = sorted(view.rows);
      view.page = 0;
      show();
    });
  }

  // On a phone rows become lists, and cells need the names of their columns.
  for (const table of document.querySelectorAll("table:not(#event-table)")) {
    const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
    for (const row of table.tBodies[0].rows) {
      for (const cell of row.querySelectorAll("td")) cell.dataset.label = titles[cell.cellIndex];
    }
  }
  document.documentElement.classList.add("labelled");

  // What is folded away on the screen stands open on paper.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => { for (const one of opened) one.open = false; });

  if (matchMedia("(max-width: 44rem)").matches) element("page-size").value = "25";
  element("browser").hidden = false;
  refilter();
})();
