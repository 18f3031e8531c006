// Functions of every page: periodic updates, copy buttons, keys, times in local time.
"use strict";

(() => {
  const seconds = (element) => Number(element.dataset.every || 2);

  // A hidden page sends no requests. `data-every` of a part is its interval in seconds.
  let ticks = 0;
  setInterval(() => {
    ticks += 1;
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-every]")) {
      if (ticks % seconds(part) === 0) htmx.trigger(part, "tick");
    }
    document.body.dispatchEvent(new CustomEvent("second"));
  }, 1000);

  // After a failed request the old content remains, with a message; an empty part shows the error.
  const connection = document.getElementById("connection");
  document.body.addEventListener("htmx:sendError", () => {
    connection.textContent = "The service does not answer; the page may be outdated.";
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) connection.textContent = "";
    else if (event.detail.xhr && event.detail.xhr.status >= 400 && !event.detail.elt.dataset.errors) {
      connection.textContent = `The service answered ${event.detail.xhr.status}; the page may be outdated.`;
    }
  });
  // An unchanged response is not swapped in, so that a selection remains.
  const shown = new WeakMap();
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    if (xhr.status === 200 && target.dataset.every && shown.get(target) === xhr.responseText) event.detail.shouldSwap = false;
  });
  // Nothing is swapped while a button in the part is pressed, because the click would be lost.
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.target.dataset.every && detail.target.querySelector(":active")) detail.shouldSwap = false;
  });
  // Opened details remain open after a swap.
  let opened = null;
  document.body.addEventListener("htmx:beforeSwap", ({ detail }) => {
    opened = new Map([...detail.target.querySelectorAll("details[id]")].map((box) => [box.id, box.open]));
  });
  document.body.addEventListener("htmx:afterSwap", () => {
    for (const [id, open] of opened || []) {
      const box = document.getElementById(id);
      if (box) box.open = open;
    }
    opened = null;
  });
  document.body.addEventListener("htmx:afterSwap", (event) => {
    const now = event.target.isConnected ? event.target : event.target.id && document.getElementById(event.target.id);
    if (now && event.detail.xhr) shown.set(now, event.detail.xhr.responseText);
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status >= 400 && event.detail.elt.dataset.errors) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
  });

  // Lists show the time if it is today, and the date otherwise.
  const short = (at) => (at.toDateString() === new Date().toDateString()
    ? at.toLocaleTimeString(undefined, { timeStyle: "short" })
    : at.toLocaleDateString(undefined, { day: "numeric", month: "short", ...(at.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" }) }));

  const furnish = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = time.dataset.how === "short" ? short(at) : at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    }
    for (const place of root.querySelectorAll(".copy")) {
      if (place.querySelector("button") || !navigator.clipboard) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "plain";
      button.textContent = "Copy";
      button.addEventListener("click", async () => {
        await navigator.clipboard.writeText(place.querySelector("pre").textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 1500);
      });
      place.append(button);
    }
  };
  // Exactly two items can be compared.
  const pickers = () => {
    for (const button of document.querySelectorAll("button[data-two]")) {
      const ticked = button.form.querySelectorAll("input[name=key]:checked").length;
      button.disabled = ticked !== 2;
      button.textContent = ticked === 1 ? "Select one more" : ticked > 2 ? "Select only two" : "Compare two";
    }
  };
  document.addEventListener("change", pickers);
  document.body.addEventListener("htmx:afterSettle", pickers);
  addEventListener("pageshow", pickers);

  // A chosen example is entered in the form; other fields do not change.
  for (const example of document.querySelectorAll("[data-fill]")) {
    example.addEventListener("click", (event) => {
      event.preventDefault();
      const field = document.getElementById("workload");
      field.value = example.dataset.fill;
      field.focus();
      htmx.trigger(field, "change");
    });
  }
  furnish(document);
  document.body.addEventListener("htmx:afterSettle", (event) => furnish(event.target.parentElement || event.target));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const field = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (field) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "n" || event.key === "/") {
      location.assign(event.key === "n" ? "/jobs/new" : "/#q");
    }
  });
  const problem = document.getElementById("form-problem");
  if (problem) problem.focus();
  else if (location.hash === "#q") document.getElementById("q")?.focus();
  else document.getElementById("workload")?.focus();
})();
