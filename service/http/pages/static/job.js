// The charts of a job: measured and predicted times of its trials, and their settings.
// Each request returns the new trials as JSON; colours are from the style sheet.
"use strict";

(() => {
  const drawings = document.getElementById("drawings");
  const trials = [];
  const limits = { bound: null, default: null };
  let after = 0;
  let done = false;
  let asking = false;
  let curve = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const number = (value) => (value === undefined || value === "" ? null : Number(value));

  const unitOf = (secs) => [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]].find(([scale]) => secs >= scale) || [1e-9, "ns"];
  const duration = (secs, digits = 3) => {
    if (secs === null || secs === undefined) return "-";
    const [scale, unit] = unitOf(secs);
    return `${Number((secs / scale).toPrecision(digits))} ${unit}`;
  };

  const svg = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // -- requests

  async function ask() {
    if (asking || done) return;
    asking = true;
    try {
      let more = true;
      let news = false;
      while (more) {
        const answer = await fetch(`${drawings.dataset.trials}?after=${after}`, { headers: { Accept: "application/json" } });
        if (!answer.ok) return;
        const told = await answer.json();
        trials.push(...told.trials);
        news = news || told.trials.length > 0;
        after = told.after;
        more = told.more;
        done = told.done && !told.more;
      }
      if (news || done) draw();
    } catch {
      // tilewright.js shows that the service does not answer; the next second tries again.
    } finally {
      asking = false;
    }
  }

  function readLimits() {
    for (const place of [drawings, document.getElementById("facts"), document.getElementById("result")]) {
      if (!place) continue;
      limits.bound = number(place.dataset.boundSecs) ?? limits.bound;
      limits.default = number(place.dataset.defaultSecs) ?? limits.default;
    }
    // The first trial of every search is the default schedule.
    const first = trials.find((trial) => trial.trial === 1);
    if (limits.default === null && first && first.secs) limits.default = first.secs;
  }

  function draw() {
    readLimits();
    drawCurve();
    drawParallel();
    drawScatter();
    drawStatuses();
  }

  // -- best so far

  function drawCurve() {
    const place = document.getElementById("curve");
    const timed = trials.filter((trial) => trial.secs);
    if (!timed.length) {
      place.textContent = trials.length ? `No trial has passed${done ? "" : " yet"}.` : `No trial has ended${done ? "" : " yet"}.`;
      return;
    }
    ceiling = ceilingOf(timed);
    const at = trials.map((trial) => trial.at);
    const data = [
      at,
      trials.map((trial) => trial.best),
      trials.map((trial) => (trial.secs <= ceiling ? trial.secs : null)),
      at.map(() => limits.bound),
      at.map(() => limits.default),
    ];
    document.getElementById("curve-legend").hidden = false;
    // In a wide chart, names are at the ends of the lines.
    const named = place.clientWidth >= WIDE;
    document.querySelector("#curve-legend .key-best").hidden = named;
    document.getElementById("key-bound").hidden = named || limits.bound === null;
    document.getElementById("key-default").hidden = named || limits.default === null;
    document.getElementById("key-slow").hidden = !timed.some((trial) => trial.secs > ceiling);
    document.getElementById("key-bad").hidden = timed.length === trials.length;
    if (curve) {
      curve.setData(data);
      return;
    }
    place.textContent = "";
    curve = new uPlot(curveOptions(place), data, place);
  }

  const WIDE = 560;
  let ceiling = Infinity;

  // The slowest trials would compress the chart. It covers the incumbents, the default schedule,
  // and three quarters of all trials.
  function ceilingOf(timed) {
    const sorted = timed.map((trial) => trial.secs).sort((a, b) => a - b);
    const usual = sorted[Math.floor(0.75 * (sorted.length - 1))];
    const needed = Math.max(timed[0].best ?? 0, limits.default ?? 0, usual, 1.15 * sorted[0]) * 1.12;
    return sorted[sorted.length - 1] <= needed * 1.3 ? Infinity : needed;
  }

  // The axis begins with the job, unless most of the chart would then be empty.
  const begin = (first, last) => [first > 0.4 * last ? Math.max(0, first - 0.04 * (last - first)) : 0, last];

  // A few round numbers between two times.
  function marks(low, high) {
    if (high / low < 3) {
      const rough = (high - low) / 6;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 2.5, 5, 10].find((digit) => digit * power >= rough) * power;
      const first = Math.ceil(low / step);
      return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, n) => Number(((first + n) * step).toPrecision(6)));
    }
    const kinds = [[1], [1, 2, 5], [1, 1.5, 2, 3, 5, 7], Array.from({ length: 36 }, (_, n) => 1 + n / 4), Array.from({ length: 180 }, (_, n) => 1 + n / 20)];
    let found = [];
    for (const kind of kinds) {
      found = [];
      for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1) {
        found.push(...kind.map((digit) => Number((digit * 10 ** power).toPrecision(4))).filter((value) => value >= low && value <= high));
      }
      if (found.length >= 4) break;
    }
    const every = Math.ceil(found.length / 8);
    return found.filter((_, index) => index % every === 0);
  }

  function curveOptions(place) {
    const ink = () => colour("--soft");
    const grid = { stroke: () => colour("--rule"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const low = () => Math.min(...[limits.bound, ...trials.map((t) => t.secs)].filter(Boolean));
    const high = () => (ceiling < Infinity ? ceiling : Math.max(...[limits.default, ...trials.map((t) => t.secs)].filter(Boolean)));
    const named = place.clientWidth >= WIDE;
    return {
      width: place.clientWidth,
      height: Math.max(240, Math.min(360, place.clientWidth * 0.42)),
      padding: [8, named ? 118 : 8, 0, 0],
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      legend: { show: false },
      scales: {
        x: { time: false, range: (u, min, max) => begin(min, Math.max(max, 1e-3)) },
        y: { distr: 3, log: 10, range: () => { const room = Math.max(1.02, (high() / low()) ** 0.08); return [low() / room, high() * room]; } },
      },
      axes: [
        { stroke: ink, grid, ticks: grid, font, values: (u, splits) => splits.map((s) => `${Number(s.toPrecision(6))} s`) },
        { stroke: ink, grid, ticks: grid, font, size: 64, splits: (u, axis, low, high) => marks(low, high), filter: (u, splits) => splits, values: (u, splits) => splits.map((s) => (s ? duration(s, 4) : "")) },
      ],
      series: [
        {},
        { stroke: () => colour("--accent"), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        { stroke: () => colour("--trial"), paths: () => null, points: { show: true, size: 4, fill: () => colour("--trial") } },
        { stroke: () => colour("--good"), width: 1.5, points: { show: false } },
        { stroke: () => colour("--warn"), width: 1.5, dash: [6, 5], points: { show: false } },
      ],
      hooks: {
        setCursor: [(u) => tellTrial(trials[u.cursor.idx])],
        draw: [(u) => {
          // A failure has no time, and is a stroke at the top of the chart. A trial above the chart
          // is an arrow there.
          const { ctx } = u;
          ctx.save();
          ctx.fillStyle = colour("--trial");
          for (const trial of trials) {
            if (!(trial.secs > ceiling)) continue;
            const [x, y, r] = [u.valToPos(trial.at, "x", true), u.bbox.top + 11 * devicePixelRatio, 3 * devicePixelRatio];
            ctx.beginPath();
            ctx.moveTo(x, y);
            ctx.lineTo(x - r, y + 1.8 * r);
            ctx.lineTo(x + r, y + 1.8 * r);
            ctx.fill();
          }
          ctx.strokeStyle = colour("--bad");
          ctx.lineWidth = devicePixelRatio;
          for (const trial of trials) {
            if (trial.secs) continue;
            const x = Math.round(u.valToPos(trial.at, "x", true));
            ctx.beginPath();
            ctx.moveTo(x, u.bbox.top);
            ctx.lineTo(x, u.bbox.top + 8 * devicePixelRatio);
            ctx.stroke();
          }
          if (named) nameLines(u);
          ctx.restore();
        }],
      },
    };
  }

  // The names of the lines, at their ends, without overlaps.
  function nameLines(u) {
    const { ctx } = u;
    const best = trials.findLast((trial) => trial.best)?.best;
    const lines = [["best", best, "--accent"], ["bound", limits.bound, "--good"], ["default", limits.default, "--warn"]]
      .filter(([, secs]) => secs && secs <= ceiling)
      .map(([name, secs, ink]) => ({ text: `${name} ${duration(secs)}`, ink, y: u.valToPos(secs, "y", true) }))
      .sort((a, b) => a.y - b.y);
    const apart = 14 * devicePixelRatio;
    lines.forEach((line, index) => { if (index) line.y = Math.max(line.y, lines[index - 1].y + apart); });
    const over = lines.length ? lines[lines.length - 1].y - (u.bbox.top + u.bbox.height) : 0;
    ctx.font = `600 ${11 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.textBaseline = "middle";
    ctx.textAlign = "left";
    for (const line of lines) {
      ctx.fillStyle = colour(line.ink);
      ctx.fillText(line.text, u.bbox.left + u.bbox.width + 8 * devicePixelRatio, line.y - Math.max(over, 0));
    }
  }

  function tellTrial(trial) {
    document.getElementById("curve-note").textContent = trial
      ? `Trial ${trial.trial} at ${trial.at.toFixed(1)} s: ${trial.secs ? duration(trial.secs) : trial.status.replaceAll("_", " ")}; best so far ${duration(trial.best)}` +
        (trial.fraction ? `, ${Math.round(100 * trial.fraction)}% of the bound` : "")
      : "";
  }

  // -- settings

  const MOST_LINES = 600;
  const order = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

  function drawParallel() {
    const place = document.getElementById("parallel");
    const note = document.getElementById("parallel-note");
    const told = trials.filter((trial) => Object.keys(trial.knobs).length);
    const columns = told.length ? columnsOf(told) : [];
    document.getElementById("settings").hidden = columns.length < 2 && done;
    if (columns.length < 2) {
      place.textContent = "";
      const reused = number(drawings.dataset.reused);
      note.textContent = reused ? "The trials are from an earlier run; their settings are unknown to this job." : "Nothing to compare yet.";
      return;
    }
    const timed = told.filter((trial) => trial.secs).sort((a, b) => a.secs - b.secs);
    const fast = new Set(timed.slice(0, Math.max(1, Math.ceil(timed.length / 10))).map((t) => t.trial));
    const best = timed.length ? timed[0].trial : null;
    // The fastest trials are drawn last, on top. If there are too many, slow ones are omitted.
    const drawn = [...told.filter((t) => !t.secs), ...[...timed].reverse()].slice(-MOST_LINES);

    const step = Math.max(64, (place.clientWidth - 40) / (columns.length - 1 || 1));
    const width = 40 + step * (columns.length - 1);
    const [top, bottom] = [34, 236];
    const picture = svg("svg", { viewBox: `0 0 ${width} 262`, width, height: 262 });
    const x = (index) => 20 + index * step;
    const y = (column, value) => bottom - (bottom - top) * (column.values.length > 1 ? column.values.indexOf(value) / (column.values.length - 1) : 0.5);

    const lines = svg("g", {});
    for (const trial of drawn) {
      const points = columns.map((column, index) => `${x(index)},${column.place ? column.place(trial, top, bottom) : y(column, column.of(trial))}`);
      const kind = trial.trial === best ? "best" : fast.has(trial.trial) ? "fast" : trial.secs ? "" : "failed";
      const line = svg("polyline", { class: `line ${kind}`, points: points.join(" ") });
      line.append(svg("title", {}, `trial ${trial.trial}: ${trial.secs ? duration(trial.secs) : trial.status}`));
      line.addEventListener("mouseenter", () => { line.classList.add("held"); hold(trial); });
      line.addEventListener("mouseleave", () => { line.classList.remove("held"); hold(null); });
      lines.append(line);
    }
    picture.append(lines);
    columns.forEach((column, index) => {
      picture.append(svg("line", { class: "knob", x1: x(index), x2: x(index), y1: top, y2: bottom }));
      const anchor = index === columns.length - 1 ? "end" : index ? "middle" : "start";
      const at = index === columns.length - 1 ? x(index) + 18 : index ? x(index) : x(index) - 18;
      picture.append(svg("text", { class: "knob-name", x: at, y: index % 2 ? 12 : 24, "text-anchor": anchor }, column.name));
      const shown = column.place ? [] : column.values.length > 9 ? [column.values[0], column.values[column.values.length - 1]] : column.values;
      for (const value of shown) picture.append(svg("text", { class: "halo", x: x(index) + 5, y: y(column, value) + 4 }, String(value)));
      if (column.place) {
        picture.append(svg("text", { class: "halo", x: x(index) - 5, y: bottom + 16, "text-anchor": "end" }, duration(timed[0].secs)));
        picture.append(svg("text", { class: "halo", x: x(index) - 5, y: top + 4, "text-anchor": "end" }, duration(timed[timed.length - 1].secs)));
      }
    });
    const box = document.createElement("div");
    box.className = "scroll";
    box.tabIndex = 0;
    box.append(picture);
    place.replaceChildren(box);
    note.textContent = parallelNote(told.length, drawn.length, timed);
    hold(null);

    function hold(trial) {
      note.textContent = trial
        ? `Trial ${trial.trial}, ${trial.secs ? duration(trial.secs) : trial.status}: ${Object.entries(trial.knobs).map(([name, value]) => `${name} ${value}`).join(", ")}`
        : parallelNote(told.length, drawn.length, timed);
    }
  }

  const parallelNote = (told, drawn, timed) =>
    "One line per trial, through the knobs that vary" +
    (timed.length ? `; the last axis is the time of a call, fastest at the bottom. Blue: the fastest tenth of ${timed.length}.` : ".") +
    (drawn < told ? ` ${told - drawn} slower ones are not drawn.` : "");

  function columnsOf(told) {
    const names = [...new Set(told.flatMap((trial) => Object.keys(trial.knobs)))];
    const columns = [];
    if (new Set(told.map((trial) => trial.sketch)).size > 1) columns.push(column("sketch", told, (trial) => trial.sketch));
    for (const name of names) columns.push(column(name, told, (trial) => trial.knobs[name] ?? "-"));
    const varied = columns.filter((entry) => entry.values.length > 1);
    const secs = told.map((trial) => trial.secs).filter(Boolean);
    if (!varied.length || !secs.length) return varied;
    const [low, high] = [Math.log(Math.min(...secs)), Math.log(Math.max(...secs))];
    varied.push({
      name: "time",
      values: [],
      place: (trial, top, bottom) => (trial.secs ? bottom - ((bottom - top) * (Math.log(trial.secs) - low)) / (high - low || 1) : top),
    });
    return varied;
  }

  const column = (name, told, of) => ({ name, of, values: [...new Set(told.map(of))].sort(order) });

  // -- predicted and measured

  function drawScatter() {
    const place = document.getElementById("scatter");
    const note = document.getElementById("scatter-note");
    const both = trials.filter((trial) => trial.secs && trial.predicted);
    place.parentElement.hidden = done && both.length < 2;
    if (both.length < 2) {
      place.textContent = "";
      note.textContent = done || trials.length > 8 ? "There are no predictions, or too few measurements." : "Nothing to compare yet.";
      return;
    }
    const values = both.flatMap((trial) => [trial.secs, trial.predicted]);
    const [least, most] = [Math.min(...values) / 1.1, Math.max(...values) * 1.1];
    const [low, high] = [Math.log2(least), Math.log2(most)];
    const [size, left, end, top, bottom] = [380, 70, 372, 8, 310];
    const x = (log) => left + ((end - left) * (log - low)) / (high - low);
    const y = (log) => bottom - ((bottom - top) * (log - low)) / (high - low);
    const picture = svg("svg", { viewBox: `0 0 ${size} ${size - 28}` });
    let [beyond, above] = [-Infinity, Infinity];
    for (const mark of marks(least, most)) {
      const log = Math.log2(mark);
      picture.append(svg("line", { class: "grid", x1: x(log), x2: x(log), y1: top, y2: bottom }));
      picture.append(svg("line", { class: "grid", x1: left, x2: end, y1: y(log), y2: y(log) }));
      if (x(log) >= beyond + 46) {
        beyond = x(log);
        picture.append(svg("text", { x: x(log), y: bottom + 15, "text-anchor": "middle" }, duration(mark)));
      }
      if (y(log) <= above - 18) {
        above = y(log);
        picture.append(svg("text", { x: left - 6, y: y(log) + 4, "text-anchor": "end" }, duration(mark)));
      }
    }
    picture.append(svg("path", { class: "frame", d: `M${left} ${top}V${bottom}H${end}` }));
    picture.append(svg("line", { class: "even", x1: x(low), x2: x(high), y1: y(low), y2: y(high) }));
    const best = both.reduce((a, b) => (b.secs < a.secs ? b : a));
    for (const trial of both) {
      const dot = svg("circle", { class: trial === best ? "dot best" : "dot", cx: x(Math.log2(trial.predicted)), cy: y(Math.log2(trial.secs)), r: trial === best ? 5 : 3 });
      dot.append(svg("title", {}, `trial ${trial.trial}: predicted ${duration(trial.predicted)}, measured ${duration(trial.secs)}`));
      picture.append(dot);
    }
    picture.append(svg("text", { x: (left + end) / 2, y: bottom + 34, "text-anchor": "middle" }, "predicted"));
    const middle = (top + bottom) / 2;
    picture.append(svg("text", { x: 12, y: middle, "text-anchor": "middle", transform: `rotate(-90 12 ${middle})` }, "measured"));
    place.replaceChildren(picture);
    note.textContent = `${both.length} trials, each as it was predicted before it ran. On the dashed line a prediction was right.`;
  }

  // -- statuses

  function drawStatuses() {
    if (!trials.length || number(drawings.dataset.reused)) return;
    const counts = new Map();
    for (const trial of trials) counts.set(trial.status, (counts.get(trial.status) || 0) + 1);
    const table = document.createElement("table");
    table.className = "plain";
    const body = table.createTBody();
    const rows = [...counts].sort((a, b) => (b[0] === "ok") - (a[0] === "ok") || b[1] - a[1]);
    for (const [status, count] of rows) {
      const row = body.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.className = status === "ok" ? "status" : "status bad";
      head.textContent = status.replaceAll("_", " ");
      row.append(head);
      const cell = row.insertCell();
      cell.className = "n";
      cell.textContent = count;
      const why = trials.find((trial) => trial.status === status && trial.why && status !== "ok");
      if (why) {
        const told = document.createElement("span");
        told.className = "sub";
        told.textContent = `trial ${why.trial}: ${why.why}`;
        head.append(told);
      }
    }
    document.getElementById("statuses").replaceChildren(table);
  }

  // -- when

  document.body.addEventListener("second", ask);
  document.body.addEventListener("htmx:afterSettle", () => { if (trials.length) { readLimits(); if (curve) drawCurve(); } });
  const again = () => {
    if (!trials.length) return;
    if (curve) { curve.destroy(); curve = null; }
    draw();
  };
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(again, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  ask();
})();
