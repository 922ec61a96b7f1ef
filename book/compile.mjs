// Compile the Python in a zip, as Pyodide would have to each time that the page is opened:
// node book/compile.mjs SOURCES.zip COMPILED.zip
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { loadPyodide } from "pyodide";

const [sources, compiled] = process.argv.slice(2);
const library = fileURLToPath(new URL("node_modules/pyodide/compiled.zip", import.meta.url));
const python = await loadPyodide(existsSync(library) ? { stdLibURL: library } : {});
python.FS.writeFile("/sources.zip", readFileSync(sources));
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
writeFileSync(compiled, python.FS.readFile("/compiled.zip"));
