// What every page does: asks again while it is looked at, copies, keys, times in local time.
"use strict";

(() => {
  const seconds = (element) => Number(element.dataset.every || 2);

  // A page that nobody sees asks for nothing; each part says how often it wants to be asked.
  let ticks = 0;
  setInterval(() => {
    ticks += 1;
    if (document.hidden) return;
    for (const part of document.querySelectorAll("[data-every]")) {
      if (ticks % seconds(part) === 0) htmx.trigger(part, "tick");
    }
    document.body.dispatchEvent(new CustomEvent("second"));
  }, 1000);

  // A failed question leaves what is shown, and says so; a part that has nothing yet shows why.
  const connection = document.getElementById("connection");
  document.body.addEventListener("htmx:sendError", () => {
    connection.textContent = "The service does not answer; what is shown may be old.";
  });
  document.body.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) connection.textContent = "";
    else if (event.detail.xhr && event.detail.xhr.status >= 400 && !event.detail.elt.dataset.errors) {
      connection.textContent = `The service answered ${event.detail.xhr.status}; what is shown may be old.`;
    }
  });
  document.body.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status >= 400 && event.detail.elt.dataset.errors) {
      event.detail.shouldSwap = true;
      event.detail.isError = false;
    }
  });

  const furnish = (root) => {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.textContent;
      time.textContent = at.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
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
  furnish(document);
  document.body.addEventListener("htmx:afterSettle", (event) => furnish(event.target.parentElement || event.target));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
    const field = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (field) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "n" || event.key === "/") {
      location.assign(event.key === "n" ? "/#workload" : "/#q");
    }
  });
  const problem = document.getElementById("form-problem");
  if (problem) problem.focus();
  else if (["#workload", "#q"].includes(location.hash)) document.querySelector(location.hash)?.focus();
})();
