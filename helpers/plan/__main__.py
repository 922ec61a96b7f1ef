"""The plan of a run on the command line."""

import argparse
import json
from collections.abc import Sequence
from fractions import Fraction

from helpers.plan.run import RunPlan


def _warmup(text: str) -> int | float | Fraction:
    """Read "15" as updates, and "0.05" or "5%" as a share, exactly."""
    try:
        if text.endswith("%"):
            return Fraction(text[:-1]) / 100
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except (ValueError, ZeroDivisionError):
        raise argparse.ArgumentTypeError(
            f"must be updates such as 15, or a share such as 0.05 or 5%; got {text!r}"
        ) from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the plan of a run: ``python -m helpers.plan --examples 810 --batch-size 8``."""
    parser = argparse.ArgumentParser(prog="python -m helpers.plan", description=main.__doc__)
    parser.add_argument("--examples", type=int, required=True)
    parser.add_argument("--batch-size", type=int, required=True, help="on one device")
    parser.add_argument("--accumulation", type=int, default=1)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--max-steps", type=int)
    parser.add_argument("--drop-last", action="store_true")
    parser.add_argument("--drop-last-update", action="store_true")
    parser.add_argument(
        "--warmup", type=_warmup, default=0, help="updates, or a share as 0.05, 5%%"
    )
    parser.add_argument("--warmup-by", choices=("updates", "examples", "tokens"), default="updates")
    parser.add_argument("--tokens", type=int, help="of all examples together")
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args(arguments))
    as_json = given.pop("json")
    try:
        plan = RunPlan(**given)
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    print(json.dumps(plan.as_dict(), indent=2) if as_json else plan.table())


if __name__ == "__main__":
    main()
