"""Speed, as ratios inside one run; never part of the tests."""
