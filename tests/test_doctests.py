import doctest
import importlib
import pkgutil

import pytest

import helpers

MODULES = [module.name for module in pkgutil.walk_packages(helpers.__path__, "helpers.")]
WITH_EXAMPLES = {
    f"helpers.{name}"
    for name in (
        "_words",
        "glossary",
        "plan.run",
        "plan.backward",
        "plan.log",
        "schedule",
        "data",
        "world",
        "claims",
        "replicates",
        "noise",
        "shapes",
        "footprint.breakdown",
        "footprint.activations",
        "tables",
        "footprint.line",
        "planner.answers",
        "planner.drawing",
        "planner.fields",
        "planner.tools",
    )
}


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name):
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
    assert (results.attempted > 0) == (name in WITH_EXAMPLES)
