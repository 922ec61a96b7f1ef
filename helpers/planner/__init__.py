"""The planner without a screen: the fields of a form in, all that its page shows out. No torch.

The page of the site runs this module in the browser, and works nothing out itself.
"""

from helpers.planner.answers import answer, answer_json
from helpers.planner.fields import EXAMPLES, GROUPS, Field, defaults
from helpers.planner.reading import read, read_json

__all__ = ["EXAMPLES", "GROUPS", "Field", "answer", "answer_json", "defaults", "read", "read_json"]
