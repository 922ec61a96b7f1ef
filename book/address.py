"""Give the project another address everywhere it stands: ``make address OWNER/NAME``."""

import argparse
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAME = r"[A-Za-z0-9](?:[A-Za-z0-9-]*)/[A-Za-z0-9._-]+"


def current(root: Path = ROOT) -> str:
    """Return the owner and name of the repository, as ``pyproject.toml`` has them."""
    text = (root / "pyproject.toml").read_text("utf-8")
    return re.search(rf'^Repository = "https://github\.com/({NAME})"', text, re.MULTILINE)[1]


def site(address: str) -> str:
    """Return where the pages of a repository are.

    >>> site("Someone/a-course"), site("someone/someone.github.io")
    ('https://someone.github.io/a-course/', 'https://someone.github.io/')
    """
    owner, name = address.split("/")
    host = f"{owner.lower()}.github.io"
    return f"https://{host}/" if name.lower() == host else f"https://{host}/{name}/"


def change(address: str, root: Path = ROOT) -> list[str]:
    """Write another address in place of the present one, and return the files that had it.

    Raises ``ValueError`` for anything but OWNER/NAME.
    """
    if not re.fullmatch(NAME, address):
        raise ValueError(f"address must be OWNER/NAME, as on GitHub; got {address!r}")
    before = current(root)
    places = {before: address, site(before).rstrip("/"): site(address).rstrip("/")}
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    )
    changed = []
    for name in listed.stdout.split("\0"):
        path = root / name
        if not path.is_file():
            continue
        old = path.read_bytes()
        new = old
        for one, other in places.items():
            pattern = rf"(?<![\w.-]){re.escape(one)}(?![\w-])".encode()
            new = re.sub(pattern, other.encode(), new)
        if new != old:
            path.write_bytes(new)
            changed.append(name)
    return changed


def main() -> None:
    """Change the address, and say where."""
    parser = argparse.ArgumentParser(prog="make address", description=main.__doc__)
    parser.add_argument("address", metavar="OWNER/NAME")
    try:
        changed = change(parser.parse_args().address)
    except ValueError as error:
        parser.error(str(error))
    print("\n".join(changed) or "It stands everywhere already.")


if __name__ == "__main__":
    main()
