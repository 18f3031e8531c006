// The incumbents of two jobs in one chart, over trials or over seconds.
"use strict";

(() => {
  const place = document.getElementById("both");
  const note = document.getElementById("both-note");
  const bound = place.dataset.boundSecs ? Number(place.dataset.boundSecs) : null;
  const jobs = { left: [], right: [] };
  let by = "trial";
  let drawing = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const unitOf = (secs) => [[1, "s"], [1e-3, "ms"], [1e-6, "us"], [1e-9, "ns"]].find(([scale]) => secs >= scale) || [1e-9, "ns"];
  const duration = (secs) => {
    const [scale, unit] = unitOf(secs);
    return `${Number((secs / scale).toPrecision(3))} ${unit}`;
  };

  async function all(url) {
    const found = [];
    for (let after = 0, more = true; more;) {
      const answer = await fetch(`${url}?after=${after}`, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(String(answer.status));
      const told = await answer.json();
      found.push(...told.trials);
      [after, more] = [told.after, told.more];
    }
    return found;
  }

  // The axis has every point at which one of the jobs has a new value.
  function joined() {
    const at = (trial) => (by === "trial" ? trial.trial : trial.at);
    const places = [...new Set([...jobs.left, ...jobs.right].map(at))].sort((a, b) => a - b);
    const line = (trials) => {
      let [next, best] = [0, null];
      const last = trials.length ? at(trials[trials.length - 1]) : -Infinity;
      return places.map((x) => {
        while (next < trials.length && at(trials[next]) <= x) best = trials[next++].best ?? best;
        return x <= last ? best : null;
      });
    };
    return [places, line(jobs.left), line(jobs.right), places.map(() => bound)];
  }

  function draw() {
    const data = joined();
    if (drawing) drawing.destroy();
    drawing = null;
    place.textContent = "";
    const times = [...data[1], ...data[2]].filter(Boolean);
    if (!times.length) {
      place.textContent = "Neither job has a trial that passed.";
      return;
    }
    const [low, high] = [Math.min(...times, bound ?? Infinity), Math.max(...times)];
    const room = Math.max(1.02, (high / low) ** 0.08);
    const ink = () => colour("--soft");
    const grid = { stroke: () => colour("--rule"), width: 1 };
    const font = "11px system-ui, sans-serif";
    const stepped = uPlot.paths.stepped({ align: 1 });
    drawing = new uPlot({
      width: place.clientWidth,
      height: Math.max(240, Math.min(380, place.clientWidth * 0.38)),
      legend: { show: false },
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      scales: { x: { time: false }, y: { distr: 3, log: 10, range: () => [low / room, high * room] } },
      axes: [
        { stroke: ink, grid, ticks: grid, font, label: by === "trial" ? "trial" : "seconds since the job began", labelFont: font, labelSize: 18 },
        { stroke: ink, grid, ticks: grid, font, size: 64, splits: () => marks(low / room, high * room), filter: (u, splits) => splits, values: (u, splits) => splits.map(duration) },
      ],
      series: [
        {},
        { stroke: () => colour("--accent"), width: 2, paths: stepped, points: { show: false } },
        { stroke: () => colour("--warn"), width: 2, dash: [7, 4], paths: stepped, points: { show: false } },
        { stroke: () => colour("--good"), width: 1.5, points: { show: false } },
      ],
    }, data, place);
    note.textContent = tell();
  }

  // Five to eight round numbers between two times.
  function marks(low, high) {
    const power = 10 ** Math.floor(Math.log10(low));
    const steps = [10, 5, 2.5, 2, 1, 0.5, 0.25, 0.2, 0.1, 0.05, 0.025, 0.02, 0.01, 0.005, 0.002, 0.001].map((digit) => digit * power);
    const step = steps.find((size) => (high - low) / size >= 4) ?? steps[steps.length - 1];
    const found = [];
    for (let n = Math.ceil(low / step); n * step <= high && found.length < 60; n += 1) found.push(Number((n * step).toPrecision(6)));
    const every = Math.ceil(found.length / 8);
    return found.filter((_, index) => index % every === 0);
  }

  // When each job reached the best time of the other.
  function tell() {
    const lines = [];
    for (const [name, mine, theirs] of [["Left", jobs.left, jobs.right], ["Right", jobs.right, jobs.left]]) {
      const goal = theirs.findLast((trial) => trial.best)?.best;
      const first = goal && mine.find((trial) => trial.best && trial.best <= goal * 1.001);
      if (goal) lines.push(first ? `${name} was as fast as the best of the other at trial ${first.trial}, after ${first.at.toFixed(1)} s.` : `${name} was never as fast as the other.`);
    }
    return lines.join(" ");
  }

  for (const way of ["trial", "time"]) {
    document.getElementById(`by-${way}`).addEventListener("click", () => {
      by = way;
      for (const one of ["trial", "time"]) document.getElementById(`by-${one}`).setAttribute("aria-pressed", String(one === way));
      draw();
    });
  }
  let resizing = 0;
  addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(draw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  Promise.all([all(place.dataset.left), all(place.dataset.right)]).then(([left, right]) => {
    [jobs.left, jobs.right] = [left, right];
    draw();
  }, () => { note.textContent = "The trials cannot be read at the moment; load the page again."; });
})();
