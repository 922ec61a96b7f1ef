// Python in a thread of its own, so that the page stays awake. A message is [call, text]; what the
// function of helpers.planner by that name returns goes back.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const [python, packed] = await Promise.all([
  loadPyodide(),
  fetch(new URL("helpers.zip", import.meta.url)).then((reply) => reply.arrayBuffer()),
]);
python.FS.writeFile("/helpers.zip", new Uint8Array(packed));
python.runPython("import sys; sys.path.insert(0, '/helpers.zip')");
const planner = python.pyimport("helpers.planner");

addEventListener("message", ({ data: [call, text] }) => postMessage(planner[call](text)));
postMessage("ready");
