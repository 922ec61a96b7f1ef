// Compile the standard library of Pyodide once, where it lies after `npm ci`: its zip holds sources,
// and a page that has to compile those starts in three times the time.
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadPyodide } from "pyodide";

const folder = fileURLToPath(new URL("node_modules/pyodide/", import.meta.url));
const python = await loadPyodide();
python.FS.writeFile("/sources.zip", readFileSync(`${folder}python_stdlib.zip`));
python.runPython(`
import importlib.util, zipfile
from importlib._bootstrap_external import _code_to_hash_pyc

with (
    zipfile.ZipFile("/sources.zip") as sources,
    zipfile.ZipFile("/compiled.zip", "w", zipfile.ZIP_DEFLATED) as compiled,
):
    for entry in sources.infolist():
        name, data = entry.filename, sources.read(entry)
        if name.endswith(".py"):
            code = compile(data, name, "exec", dont_inherit=True)
            data = bytes(_code_to_hash_pyc(code, importlib.util.source_hash(data), False))
            name += "c"
        compiled.writestr(name, data)
`);
writeFileSync(`${folder}compiled.zip`, python.FS.readFile("/compiled.zip"));
