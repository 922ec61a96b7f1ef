// The page of the planner: it carries texts to Python and shows what comes back. Nothing is worked
// out here.

const byId = (id) => document.getElementById(id);
const form = byId("fields");
const controls = [...form.querySelectorAll("input, select")];

// A worker made from a blob keeps the content policy of the page; one made from a file would not.
const code = `import ${JSON.stringify(new URL("planner-worker.js", import.meta.url).href)};`;
const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), {
  type: "module",
});
const waiting = [];
const ready = new Promise((resolve, reject) => {
  waiting.push(resolve);
  worker.onerror = (event) => reject(new Error(`Python could not be started here. ${event.message ?? ""}`));
});
worker.onmessage = ({ data }) => waiting.shift()(data);

/** Return what a function of helpers.planner answers to a text; answers come in order. */
export async function ask(call, text) {
  await ready;
  return new Promise((resolve) => {
    waiting.push(resolve);
    worker.postMessage([call, text]);
  });
}

function texts() {
  return Object.fromEntries(
    controls.map((control) => [
      control.id,
      control.type === "checkbox" ? (control.checked ? "yes" : "no") : control.value,
    ]),
  );
}

/** Fill the form from the address; a field that is not in it is as at the start. */
function fill() {
  const given = new URLSearchParams(location.hash.slice(1));
  form.reset();
  form.querySelectorAll("option.unknown").forEach((option) => option.remove());
  for (const control of controls) {
    const text = given.get(control.id);
    if (text === null) continue;
    if (control.type === "checkbox") control.checked = text === "yes";
    else control.value = text;
    if (control.value !== text && control.tagName === "SELECT") {
      const option = new Option(text, text, false, true); // Python says what is wrong with it
      option.className = "unknown";
      control.add(option);
    }
  }
}

function element(name, content, attributes = {}) {
  const made = document.createElement(name);
  made.append(...[content].flat());
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function row([first, ...rest], head) {
  const scope = head ? "col" : "row";
  return element("tr", [
    first || !head ? element("th", first, { scope }) : element("td", ""),
    ...rest.map((cell) => (head ? element("th", cell, { scope }) : element("td", cell))),
  ]);
}

const fillTable = (id, rows, head) =>
  byId(id).replaceChildren(...(head ? [row(head, true)] : []), ...rows.map((one) => row(one)));

const fillList = (id, lines) =>
  byId(id).replaceChildren(...lines.map((line) => element("li", line)));

const SECTIONS = ["plan", "splits", "rate", "memory", "settings"];

function show(answer) {
  for (const control of controls) {
    const error = answer.errors[control.id] ?? "";
    byId(`${control.id}-error`).textContent = error;
    control.setAttribute("aria-invalid", Boolean(error));
    control.closest(".field").hidden = answer.unused.includes(control.id);
  }
  for (const name of SECTIONS) byId(name).closest("section").hidden = !answer[name];
  byId("verdict").textContent = answer.verdict;
  fillList("notes", answer.plan?.notes ?? []);
  fillList("memory-notes", answer.memory?.notes ?? []);
  fillTable("plan", answer.plan?.rows ?? []);
  fillTable("splits", answer.splits?.slice(1) ?? [], answer.splits?.[0]);
  byId("rate").innerHTML = answer.rate?.picture ?? "";
  byId("rate-words").textContent = answer.rate?.words ?? "";
  byId("memory-verdict").textContent = answer.memory?.verdict ?? "";
  byId("memory").innerHTML = answer.memory?.picture ?? "";
  fillTable("memory-table", answer.memory?.rows ?? [], answer.memory?.moments);
  fillTable("methods", answer.memory?.methods ?? [], answer.memory && ["", "largest batch"]);
  showSettings(answer.settings ?? []);
}

function showSettings(tools) {
  const before = [...byId("settings").children];
  const open = before.filter((one) => one.open).map((one) => one.id);
  byId("settings").replaceChildren(...tools.map(({ name, text, notes }, number) => {
    const copy = element("button", "Copy", { type: "button", "aria-label": `Copy for ${name}` });
    copy.onclick = () => copied(copy, text);
    const settings = element("pre", text, { tabindex: "0", "aria-label": `Settings for ${name}` });
    const made = element("details", [
      element("summary", name),
      ...notes.map((note) => element("p", note)),
      ...(text ? [copy, settings] : []),
    ], { id: `tool-${name}` });
    made.open = before.length ? open.includes(made.id) : number === 0;
    return made;
  }));
}

async function copied(button, text) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "This browser does not let it be copied";
  }
  setTimeout(() => { button.textContent = label; }, 2000);
}

/** Put the whole plan into the address. */
function address() {
  history.replaceState(null, "", `#${new URLSearchParams(texts())}`);
}

let latest = 0, later;

/** Show the plan of what the fields hold now; the address follows, which no browser lets hurry. */
async function refresh() {
  const mine = ++latest, given = texts();
  clearTimeout(later);
  later = setTimeout(address, 300);
  const start = performance.now();
  const width = Math.round(document.querySelector(".answers").clientWidth) || 640;
  const answer = JSON.parse(await ask("answer_json", JSON.stringify({ ...given, width })));
  if (mine !== latest) return;
  show(answer);
  const took = Math.round(performance.now() - start);
  byId("time").textContent = `Worked out in ${took} ms, in this browser.`;
  byId("time").dataset.milliseconds = took;
  read();
}

/** Show what Python reads out of an error or a log that was pasted. */
async function read() {
  const text = byId("paste").value;
  if (!text.trim()) return byId("reading").replaceChildren();
  const found = JSON.parse(await ask("read_json", JSON.stringify({ ...texts(), text })));
  byId("reading").replaceChildren(
    element("h3", found.title),
    ...Object.entries(found.lists).flatMap(([heading, lines]) => [
      element("h4", heading),
      element("ul", lines.map((line) => element("li", line))),
    ]),
    element("table", found.rows.map((one) => row(one))),
  );
}

form.addEventListener("input", refresh);
form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("reset", () => setTimeout(refresh));
byId("paste").addEventListener("input", read);
byId("copy-link").onclick = (event) => { address(); copied(event.target, location.href); };
addEventListener("hashchange", () => { fill(); refresh(); });
addEventListener("resize", refresh);

fill();
byId("verdict").textContent = "Starting Python …";
ready.then(
  () => { document.querySelector(".answers").hidden = false; refresh(); },
  (error) => { byId("verdict").textContent = error.message; },
);
