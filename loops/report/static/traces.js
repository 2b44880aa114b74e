"use strict";
// Everything shown is set as text; no markup is ever made from data. Scripts in data/ call index() and chunk().
(() => {
  const ROW = 74, LINES = 2, PART = 20000, CHUNKS_KEPT = 12;
  const WORDS = {predict: "Predict", review: "Review", select: "Select", observe: "Observe", calibrate: "Calibrate", revise: "Revise"};
  const ABOUT = {
    predict: "first answers, before any measurement",
    review: "the same evidence again; feeds nothing",
    select: "which measurement is made",
    observe: "what the measurement gave",
    calibrate: "the simulator's predictions after the measurement",
    revise: "final answers, with the measurement",
  };
  const $ = (id) => document.getElementById(id);
  const state = {index: null, found: [], at: -1, case: -1, left: "", right: "", shown: ""};
  const chunks = new Map();
  const waiting = new Map();

  function load(name) {
    return new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = "data/" + name;
      script.onload = () => { script.remove(); done(); };
      script.onerror = () => { script.remove(); failed(new Error("data/" + name + " cannot be read. Was the whole folder copied?")); };
      document.head.append(script);
    });
  }

  async function chunkOf(run, number) {
    const name = "r" + run + "-" + number;
    if (!chunks.has(name)) {
      if (!waiting.has(name)) waiting.set(name, load(name + ".js").finally(() => waiting.delete(name)));
      await waiting.get(name);
      for (const old of [...chunks.keys()].slice(0, -CHUNKS_KEPT)) chunks.delete(old);
    }
    return chunks.get(name);
  }

  window.vcloop = {
    index(index) { state.index = index; },
    chunk(run, number, content) {
      chunks.set("r" + run + "-" + number, {messages: content.messages, cases: new Map(content.cases)});
    },
  };

  // Characters that do not show, or that change how others show, are made visible.
  function visible(text) {
    return String(text).replace(/\p{Surrogate}/gu, "\ufffd").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g, (c) => {
      const code = c.charCodeAt(0);
      return code < 32 ? String.fromCharCode(0x2400 + code) : "\u27e8U+" + code.toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
    });
  }

  function el(tag, options, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(options || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "text") node.textContent = visible(value);
      else if (key === "class") node.className = value;
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  const number = (value, digits = 3) => value === null || value === undefined ? "–" : (value > 0 ? "+" : "") + value.toFixed(digits);
  const withError = (value, se) => number(value) + (se ? " ± " + se.toFixed(3) : "");

  // ---- the list of cases ----

  const tallyOf = (entry) => ({n: entry[3], initial: entry[4], reviewed: entry[5], revised: entry[6], corrections: entry[7], regressions: entry[8], missing: entry[9]});

  function passes(row) {
    const text = $("text").value.trim().toLowerCase();
    if (text && !(row[0] + "\n" + row[1]).toLowerCase().includes(text)) return false;
    const pilot = $("pilot").value, outcome = $("outcome").value, changed = $("changed").value, missing = $("missing").value;
    const entries = row[2];
    if (pilot && state.index.runs[entries[0][0]].pilot !== Number(pilot)) return false;
    if (outcome && !entries.some((e) => e[2] & (1 << Number(outcome)))) return false;
    const corrected = entries.some((e) => e[7] > 0), regressed = entries.some((e) => e[8] > 0), lost = entries.some((e) => e[9] > 0);
    if (changed === "corrected" && !corrected) return false;
    if (changed === "regressed" && !regressed) return false;
    if (changed === "either" && !corrected && !regressed) return false;
    if (changed === "none" && (corrected || regressed)) return false;
    if (missing === "some" && !lost) return false;
    return !(missing === "none" && lost);
  }

  function filter() {
    const rows = state.index.cases;
    state.found = [];
    for (let i = 0; i < rows.length; i++) if (passes(rows[i])) state.found.push(i);
    state.at = state.found.indexOf(state.case);
    $("count").textContent = state.found.length.toLocaleString("en") + " of " + rows.length.toLocaleString("en") + " cases";
    $("rows").style.height = state.found.length * ROW + "px";
    $("list").scrollTop = state.at < 0 ? 0 : Math.max(0, (state.at - 2) * ROW);
    paint();
  }

  function summariesOf(row) {
    const lines = row[2].slice(0, row[2].length > LINES ? LINES - 1 : LINES).map((entry) => {
      const t = tallyOf(entry), words = [];
      if (t.n) words.push(t.initial + "→" + t.revised + " of " + t.n + " right");
      if (t.corrections || t.regressions) words.push("+" + t.corrections + "/−" + t.regressions);
      if (t.missing) words.push(t.missing + " missing");
      return state.index.runs[entry[0]].label + ": " + (words.join(", ") || "not scored");
    });
    if (row[2].length > LINES) lines.push("and " + (row[2].length - LINES + 1) + " more runs");
    return lines.map((line) => el("span", {text: line}));
  }

  function paint() {
    const list = $("list"), from = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const until = Math.min(state.found.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
    const nodes = [];
    for (let place = from; place < until; place++) {
      const row = state.index.cases[state.found[place]];
      const synthetic = state.index.runs[row[2][0][0]].synthetic;
      const title = el("b", {text: row[1]});
      if (synthetic) title.prepend(el("strong", {class: "tag", text: "SYNTHETIC"}), " ");
      const node = el("div", {class: "row", role: "option", id: "row-" + place, "aria-setsize": state.found.length, "aria-posinset": place + 1, "aria-selected": String(place === state.at)},
        title, ...summariesOf(row));
      node.style.top = place * ROW + "px";
      node.addEventListener("click", () => choose(place, true));
      nodes.push(node);
    }
    $("rows").replaceChildren(...nodes);
    if (state.at >= from && state.at < until) list.setAttribute("aria-activedescendant", "row-" + state.at);
    else list.removeAttribute("aria-activedescendant");
  }

  function choose(place, enter) {
    if (!state.found.length) return;
    state.at = Math.min(Math.max(place, 0), state.found.length - 1);
    state.case = state.found[state.at];
    const list = $("list"), top = state.at * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    paint();
    open().then(() => { if (enter) goToTrace(); });
  }

  function goToTrace() {
    $("case-title").focus({preventScroll: true});
    $("case-title").scrollIntoView({block: "start"});
  }

  function listKeys(event) {
    const page = Math.max(1, Math.floor($("list").clientHeight / ROW) - 1);
    const moves = {ArrowDown: state.at + 1, ArrowUp: state.at - 1, PageDown: state.at + page, PageUp: state.at - page, Home: 0, End: state.found.length - 1};
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in moves) choose(moves[event.key], false);
    else if (event.key === "Enter" && state.case >= 0) goToTrace();
    else return;
    event.preventDefault();
  }

  // ---- one case ----

  const seatsOf = (row) => row[2].flatMap((entry) => {
    const run = state.index.runs[entry[0]];
    return Array.from({length: run.repeats}, (_, repeat) => ({entry, run, repeat, key: entry[0] + "." + repeat,
      label: run.model + " · " + run.label + (run.repeats > 1 ? " · repeat " + (repeat + 1) : "") + (run.synthetic ? " · SYNTHETIC" : "")}));
  });

  function fillSeats(seats) {
    if (!seats.some((s) => s.key === state.left)) state.left = seats[0].key;
    if (state.right !== "none" && !seats.some((s) => s.key === state.right)) state.right = "";
    if (!state.right) state.right = (seats.find((s) => s.key !== state.left) || {key: "none"}).key;
    const options = () => seats.map((s) => el("option", {value: s.key, text: s.label}));
    $("left").replaceChildren(...options());
    $("right").replaceChildren(el("option", {value: "none", text: "nothing beside it"}), ...options());
    $("left").value = state.left;
    $("right").value = state.right;
  }

  async function open() {
    const row = state.index.cases[state.case], seats = seatsOf(row);
    fillSeats(seats);
    const wanted = [state.left, state.right].filter((key) => key !== "none").map((key) => seats.find((s) => s.key === key));
    const ticket = state.shown = state.case + "/" + state.left + "/" + state.right;
    history.replaceState(null, "", "#case=" + state.case + "&left=" + state.left + "&right=" + state.right);
    try {
      const sides = await Promise.all(wanted.map(async (seat) => {
        const chunk = await chunkOf(seat.entry[0], seat.entry[1]);
        const trace = chunk.cases.get(state.case);
        return {seat, messages: chunk.messages, about: trace.about, repeat: trace.repeats[seat.repeat]};
      }));
      if (ticket !== state.shown) return;
      $("problem").hidden = true;
      show(row, sides);
    } catch (error) {
      if (ticket !== state.shown) return;
      $("problem").hidden = false;
      $("problem").textContent = error.message;
      $("trace").replaceChildren();
    }
  }

  function show(row, sides) {
    $("bar").hidden = false;
    $("case-title").textContent = visible(row[1]);
    document.title = visible(row[1]) + " · vcloop report";
    $("before").disabled = state.at <= 0;
    $("after").disabled = state.at < 0 || state.at >= state.found.length - 1;
    const about = sides.map((s) => s.about).find((a) => a) || null;
    const two = sides.length > 1;
    const nodes = [aboutCase(row, about)];
    if (two) nodes.push(el("div", {class: "pair two heads", "aria-hidden": "true"}, ...sides.map((s) => el("div", {class: "side"}, el("h4", {text: s.seat.label})))));
    const places = new Map();
    sides.forEach((side, which) => side.repeat.steps.forEach((step) => {
      const key = step.turn + "/" + step.step;
      if (!places.has(key)) places.set(key, {turn: step.turn, step: step.step, sides: []});
      places.get(key).sides[which] = step;
    }));
    const order = Object.keys(WORDS);
    const sorted = [...places.values()].sort((a, b) => a.turn - b.turn || order.indexOf(a.step) - order.indexOf(b.step));
    const many = sorted.some((p) => p.turn > 0);
    const told = sides.map(() => new Set()), first = sides.map(() => null);
    sorted.forEach((place, n) => {
      const id = "step-" + n;
      const columns = sides.map((side, which) => {
        const step = place.sides[which];
        const head = el("h4", {class: two ? "" : "quiet", text: side.seat.label});
        if (!step) return el("div", {class: "side"}, head, el("p", {class: "about", text: "This run has no such step."}));
        const body = oneStep(step, side, told[which], first[which]);
        if (step.step === "predict") first[which] = step.answers;
        return el("div", {class: "side"}, head, ...body);
      });
      nodes.push(el("section", {class: "step", "aria-labelledby": id},
        el("h3", {id}, WORDS[place.step] + (many ? " " + (place.turn + 1) : ""), " ", el("span", {class: "about", text: ABOUT[place.step]})),
        el("div", {class: two ? "pair two" : "pair"}, ...columns)));
    });
    nodes.push(el("section", {class: "step", "aria-labelledby": "ended"}, el("h3", {id: "ended"}, "How it ended"),
      el("div", {class: two ? "pair two" : "pair"}, ...sides.map((s) => el("div", {class: "side"}, el("h4", {class: two ? "" : "quiet", text: s.seat.label}), el("p", {text: s.repeat.outcome}))))));
    $("trace").replaceChildren(...nodes);
  }

  function table(label, head, rows, rowHeads = true) {
    const line = (cells) => el("tr", null, ...cells.map((cell, n) => {
      const node = cell instanceof Node ? cell : document.createTextNode(visible(cell === null ? "–" : cell));
      return n === 0 && rowHeads ? el("th", {scope: "row"}, node) : el("td", null, node);
    }));
    return el("div", {class: "scroll", role: "region", tabindex: "0", "aria-label": label},
      el("table", {class: "answers"}, el("caption", {text: label}),
        el("thead", null, el("tr", null, ...head.map((h) => el("th", {scope: "col", text: h})))),
        el("tbody", null, ...rows.map(line))));
  }

  function aboutCase(row, about) {
    if (!about) return el("p", {class: "note", text: "This case was not opened: the run stopped before it."});
    const p = about.perturbation;
    const details = el("details", null, el("summary", {text: "Menu, what every measurement would have given, and baselines (never shown to the model)"}),
      table("Menu", ["measurement", "cost", "would have given", "cells"], about.sealed.map((o) => {
        const entry = about.menu.find((m) => m.id === o.measurement);
        return [entry ? entry.name : o.measurement, entry ? String(entry.cost) : null, o.status === "measured" ? (o.value === null ? "a figure or text" : withError(o.value, o.se)) : "missing: " + o.reason, o.n_cells];
      })),
      ...about.baselines.map(([name, predictions]) => table("Baseline: " + name, ["readout", "mean", "sd"], predictions.map((x) => [x.readout, number(x.mean), x.sd.toFixed(3)]))));
    return el("div", null,
      el("p", {class: "about", text: row[0] + " · " + [p.name, p.action, p.note].filter(Boolean).join(" · ")}),
      table("Truth (hidden from the model)", ["readout", "truth", "change", "near zero within"], about.readouts.map((r) => [
        r.name === r.id ? r.id : r.id + ": " + r.name, r.truth ? r.truth.label : null, r.truth && r.truth.value !== null ? withError(r.truth.value, r.truth.se) : null,
        r.threshold === null ? null : "±" + r.threshold + (r.unit ? " " + r.unit : "")])),
      details);
  }

  function oneStep(step, side, told, first) {
    if (step.step === "observe") return observed(step.observation, side);
    if (step.step === "calibrate") {
      if (!step.calibrated.length) return [el("p", {class: "about", text: "No simulator, so nothing to calibrate."})];
      return [table("Calibrated predictions", ["readout", "mean", "sd", "truth"], step.calibrated.map((p) => {
        const truth = truthOf(side, p.readout);
        return [p.readout, number(p.mean), p.sd.toFixed(3), truth ? truth.label : null];
      }))];
    }
    const nodes = [];
    if (step.selected) nodes.push(selected(step.selected, side));
    if (!step.calls.length) {
      if (step.step !== "select") nodes.push(el("p", {class: "about", text: "No call of this step is in the archive."}));
      else if (!step.selected) nodes.push(el("p", {class: "about", text: "Nothing was selected."}));
      if (step.answers) nodes.push(answers(step.answers, side, first));
      return nodes;
    }
    const fresh = step.calls.flatMap((c) => c.messages).filter((m, n, all) => !told.has(m) && all.indexOf(m) === n);
    const before = step.calls[0].messages.filter((m) => told.has(m));
    fresh.forEach((m) => told.add(m));
    const asked = fresh.map((m) => side.messages[m]).filter((m) => m.role !== "assistant");
    nodes.push(...figures(asked.flatMap((m) => m.parts)));
    nodes.push(el("details", null, el("summary", {text: "Prompt (" + asked.length + " new message" + (asked.length === 1 ? "" : "s") + (before.length ? ", after " + before.length + " from before" : "") + ")"}), ...asked.map(message)));
    step.calls.forEach((call) => nodes.push(...reply(call, step.calls.length)));
    if (step.answers) nodes.push(answers(step.answers, side, first));
    if (step.proposal) nodes.push(el("p", null, "Proposed measurement: ", el("b", {text: step.proposal})));
    return nodes;
  }

  const truthOf = (side, readout) => ((side.about ? side.about.readouts : []).find((r) => r.id === readout) || {truth: null}).truth;

  function selected(choice, side) {
    const entry = side.about && choice.measurement !== null ? side.about.menu.find((m) => m.id === choice.measurement) : null;
    const node = el("p", null, choice.measurement === null ? "Nothing was measured: " + visible(choice.reason) : "Chosen: ");
    if (choice.measurement !== null) node.append(el("b", {text: entry ? entry.name : choice.measurement}));
    if (choice.refused.length) node.append(el("span", {class: "about", text: " Not on the menu, and refused: " + choice.refused.map((r) => r || "(nothing)").join("; ")}));
    return node;
  }

  function observed(o, side) {
    const truth = o.readout === null ? null : truthOf(side, o.readout);
    const line = el("p", null, el("b", {text: o.measurement}), o.status === "missing" ? " could not be made: " + visible(o.reason)
      : o.value === null ? "" : ": " + withError(o.value, o.se) + (o.n_cells === null ? "" : " in " + o.n_cells + " cells"));
    if (truth && truth.value !== null) line.append(el("span", {class: "about", text: " (truth " + withError(truth.value, truth.se) + ")"}));
    return [line, ...figures(o.parts), ...o.parts.filter((p) => p.kind !== "figure").map(part)];
  }

  function valued(label, value) {
    if (label === null) return null;
    return el("span", null, el("span", {text: label}), value === null ? "" : " ", value === null ? null : el("span", {class: "whole", text: "(" + number(value) + ")"}));
  }

  function answers(list, side, first) {
    const rows = list.map((a, n) => {
      const readout = side.about ? side.about.readouts[n] : null, truth = readout ? readout.truth : null;
      const right = a.label !== null && truth !== null && a.label === truth.label;
      const verdict = a.label === null ? el("span", {class: "none", text: "○ " + a.status + (a.reason ? ": " + a.reason : "")})
        : truth === null ? el("span", {class: "none", text: "no truth"}) : el("span", {class: "whole " + (right ? "right" : "wrong"), text: right ? "✓ right" : "✗ wrong"});
      const cell = el("span", null, verdict), was = first ? first[n] : null;
      if (was && was.label !== null && a.label !== null && truth) {
        const wasRight = was.label === truth.label;
        if (right && !wasRight) cell.append(" ", el("span", {class: "change right", text: "corrected"}));
        if (!right && wasRight) cell.append(" ", el("span", {class: "change wrong", text: "regressed"}));
        if (!right && !wasRight && was.label !== a.label) cell.append(" ", el("span", {class: "change none", text: "other wrong answer"}));
      }
      return [a.readout, cell, valued(a.label, a.value), truth ? valued(truth.label, truth.value) : null, a.confidence === null ? "–" : a.confidence.toFixed(2)];
    });
    if (!rows.length) return el("p", {class: "none", text: "○ no answers could be read"});
    return table("Answers as read, against the truth", ["readout", "verdict", "answer", "truth", "confidence"], rows);
  }

  function reply(call, of) {
    const used = [call.repair ? "repair turn, " + call.status : call.status];
    if (call.finish_reason && call.finish_reason !== "stop") used.push("finish: " + call.finish_reason);
    if (call.tokens[0] !== null || call.tokens[1] !== null) used.push((call.tokens[0] === null ? "?" : call.tokens[0]) + " tokens in, " + (call.tokens[1] === null ? "?" : call.tokens[1]) + " out");
    used.push(call.seconds.toFixed(2) + " s");
    const nodes = [el("p", {class: "about", text: (of > 1 ? "Attempt " + call.attempt + ": " : "") + used.join(" · ") + (call.error ? " · " + call.error : "")})];
    nodes.push(el("details", null, el("summary", {text: "Raw reply (" + call.text.length.toLocaleString("en") + " characters)"}), ...long(call.text)));
    if (call.reasoning) nodes.push(el("details", null, el("summary", {text: "Reasoning, not read as an answer"}), ...long(call.reasoning)));
    if (call.sent) nodes.push(el("details", null, el("summary", {text: "What was really sent"}), ...long(call.sent)));
    return nodes;
  }

  function long(text) {
    const pre = el("pre", {tabindex: "0", text: text.slice(0, PART)});
    if (text.length <= PART) return [pre];
    const more = el("button", {type: "button", text: "Show all " + text.length.toLocaleString("en") + " characters"});
    more.addEventListener("click", () => { pre.textContent = visible(text); more.remove(); pre.focus(); });
    return [pre, more];
  }

  const message = (m) => el("div", {class: "message"}, el("p", {class: "role", text: m.role}), ...m.parts.map(part));

  function part(p) {
    if (p.kind === "text") return el("p", {text: p.text});
    if (p.kind === "table") return table(p.name, p.columns, p.rows.map((row) => row.map((cell) => cell === null ? null : String(cell))));
    return el("p", {class: "about", text: "[figure " + p.name + (p.caption ? ": " + p.caption : "") + "]"});
  }

  function figures(parts) {
    const found = parts.filter((p) => p.kind === "figure");
    if (!found.length) return [];
    return [el("div", {class: "shown"}, ...found.map((p) => {
      const lost = state.index.unreadable.find(([sha256]) => sha256 === p.sha256);
      const caption = el("figcaption", {text: p.caption || p.name});
      if (lost) return el("figure", null, el("p", {class: "note", text: "Figure " + p.name + ": " + lost[1]}), caption);
      const path = "figures/" + p.sha256 + (p.media_type === "image/jpeg" ? ".jpg" : ".png");
      return el("figure", null, el("a", {href: path}, el("img", {src: path, alt: visible(p.caption || p.name)})), caption);
    }))];
  }

  // ---- start ----

  function fromAddress() {
    const wanted = new Map(location.hash.slice(1).split("&").map((pair) => pair.split("=")));
    const left = wanted.get("left");
    if (left !== undefined) state.left = left.includes(".") ? left : left + ".0";
    if (wanted.get("right")) state.right = wanted.get("right");
    let place = state.found.indexOf(Number(wanted.get("case") || NaN));
    if (place < 0 && left !== undefined) place = state.found.findIndex((n) => state.index.cases[n][2].some((e) => e[0] === parseInt(left, 10)));
    choose(Math.max(place, 0), false);
  }

  async function start() {
    try {
      await load("cases.js");
    } catch (error) {
      $("problem").hidden = false;
      $("problem").textContent = error.message;
      return;
    }
    state.index.pilots.forEach((name, n) => { if (state.index.runs.some((r) => r.pilot === n)) $("pilot").append(el("option", {value: n, text: name})); });
    state.index.outcomes.forEach((name, n) => $("outcome").append(el("option", {value: n, text: name})));
    $("filters").addEventListener("input", filter);
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("list").addEventListener("scroll", paint);
    $("list").addEventListener("keydown", listKeys);
    addEventListener("resize", paint);
    $("left").addEventListener("change", () => { state.left = $("left").value; open(); });
    $("right").addEventListener("change", () => { state.right = $("right").value; open(); });
    $("before").addEventListener("click", () => choose(state.at - 1, false));
    $("after").addEventListener("click", () => choose(state.at + 1, false));
    $("open-all").addEventListener("click", () => {
      const all = [...$("trace").querySelectorAll("details")], open = all.some((d) => !d.open);
      all.forEach((d) => { d.open = open; });
      $("open-all").textContent = open ? "Close all details" : "Open all details";
    });
    addEventListener("beforeprint", () => $("trace").querySelectorAll("details").forEach((d) => { d.open = true; }));
    filter();
    fromAddress();
  }

  start();
})();
