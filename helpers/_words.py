"""Numbers in words that do not mislead by rounding."""

import math
from fractions import Fraction


def percent(share: float | Fraction) -> str:
    """Write a share with two digits that matter, so that only 0 is 0% and only 1 is 100%.

    They are those of the distance from the nearer end.

    >>> percent(0.39), percent(1 / 200), percent(1995 / 2000)
    ('39%', '0.5%', '99.75%')
    """
    share = float(share)
    distance = 100 * min(share, 1 - share)
    places = 0 if distance <= 0 else max(1 - math.floor(math.log10(distance)), 0)
    text = f"{100 * share:.{places}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"
