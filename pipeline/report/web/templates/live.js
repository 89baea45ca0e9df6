"use strict";
// Ask for the state once a second. Load the report again only if it is a new one, and scroll back.
const part = (id) => document.getElementById(id);
const frame = part("report");
let report = "";

function show(state) {
  const build = state.build;
  part("build").textContent = build
    ? build.text
    : "No build is running. New generations appear here when they are committed.";
  part("share").hidden = !build || !build.running;
  if (build && build.share !== null) part("share").value = build.share;
  else part("share").removeAttribute("value");
  part("trouble").hidden = state.trouble === "" || (build !== null && state.report === "");
  part("trouble").textContent = state.trouble;
  part("generation").textContent = state.generation ? `generation ${state.generation}` : "";
  part("none").hidden = state.report !== "";
  frame.hidden = state.report === "";
  if (state.report !== report) {
    const top = report === "" ? 0 : frame.contentWindow.scrollY;
    report = state.report;
    frame.addEventListener("load", () => frame.contentWindow.scrollTo(0, top), { once: true });
    frame.src = `report.html?${report}`;
  }
}

async function update() {
  try {
    show(await (await fetch("state.json")).json());
  } catch {
    part("build").textContent = "The server has ended. Start thdpack stats --serve again.";
    part("share").hidden = true;
  }
  setTimeout(update, 1000);
}

update();
