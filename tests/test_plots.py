import base64
import importlib
import inspect
import math
import pkgutil
from itertools import combinations, pairwise

import matplotlib.pyplot as plt
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.text import Text

from helpers import plots
from helpers.footprint import PARTS, Breakdown
from helpers.noise import CriticalBatch, NoiseScale
from helpers.plan import RunPlan
from helpers.schedule import batch_ramp, lr_factors
from helpers.sweep import SweepResult
from helpers.train import History

SIZES = (1, 4, 16, 64)


def history(losses, seconds_each=0.1):
    made = History(RunPlan(64, 8))
    for loss in losses[1:]:
        made.add(loss, 1e-3, 8, 64, seconds_each)
    made.held_out = dict(enumerate(losses))
    return made


RATES = (0.01, 0.1, 1.0)


def swept(losses, rates=RATES, start=4.6):
    """Return a sweep of one seed with these final losses for each batch size."""
    made = SweepResult(rates, tuple(losses), (0,), (64,) * len(losses), "sgd")
    for column, (size, row) in enumerate(losses.items()):
        made.loss[0, column] = torch.tensor(row)
        made.held_out[size] = torch.stack(
            [torch.full((1, len(rates)), start), made.loss[:, column]], -1
        )
    made.finished[:] = True
    return made


WARMED = {0: swept({4: [3.0, 2.0, math.nan]}), 8: swept({4: [3.1, 2.1, 2.5]})}
FIT = CriticalBatch(size=8, low=6, high=10, min_steps=50)
UPDATES = [FIT.steps(size) for size in SIZES]
MIB, GIB = 2**20, 2**30
TIMELINE = [
    (moment, dict.fromkeys(PARTS, 0) | {"parameters": MIB, "activations": size * MIB})
    for moment, size in (("forward", 1), ("forward", 3), ("backward", 2), ("update", 0))
]
TWO_GIB = Breakdown({"update": {"parameters": GIB, "states": GIB}})
LANDSCAPE = {4: [3.0, 2.0, math.nan], 16: [3.2, 2.4, 3.0], 64: [3.6, 3.0, 9.0]}


ALL_LOST = swept({4: [3.0, 2.0, math.nan], 16: [3.2, 2.4, math.nan], 64: [3.6, math.nan, 9.0]})
RAMPED = {
    "constant": (RunPlan(16, 2, epochs=2, tokens=160), [0.1] * 16),
    "ramp": (RunPlan(16, 2, epochs=2, tokens=160, ramp=batch_ramp(2, {4: 4, 8: 8})), [0.2] * 9),
}


def drawn():
    orders = [list(torch.arange(12).split(4)), list(torch.arange(12).flip(0).split(4))]
    plan = RunPlan(80, 8, epochs=3, warmup=0.1)
    return {
        "noise": plots.noise_against_batch(SIZES, [8, 4, 2, 1]),
        "curves": plots.loss_curves({4: history([4, 3, 2]), 16: history([4, 3.5, 3])}),
        "seconds": plots.loss_curves({4: history([4, 3, 2])}, along="seconds"),
        "rates": plots.loss_against_rate([1e-3, 1e-2], {4: [3, 2], 16: [3.1, math.nan]}),
        "explorer": plots.noise_and_speed(SIZES, [8, 4, 2, 1], [10, 20, 30, 35], chosen=16),
        "throughput": plots.throughput(SIZES, [10, 20, 30, 35]),
        "repeats": plots.repeats([1, 4, 64], [2.3, 2.2, 0.5], [2.3, 2.4, 6]),
        "named": plots.named_curves({"few": {0: 3, 9: 4}, "many": {0: 3, 9: 1}}, y="loss (nats)"),
        "timeline": plots.run_timeline(plan, lr_factors(30, 3, "cosine")),
        "rate and batch": plots.rate_and_batch(RAMPED),
        "landscape": plots.rate_landscape(swept(LANDSCAPE)),
        "less than a decade": plots.rate_landscape(swept(LANDSCAPE, (1e-3, 2e-3, 4e-3))),
        "rules": plots.rate_landscape(swept(LANDSCAPE), chosen=64, reference=16),
        "best": plots.best_rate_against_batch(
            {name: [swept(LANDSCAPE).best(size) for size in LANDSCAPE] for name in ("SGD", "AdamW")}
        ),
        "steps": plots.steps_to_target(
            SIZES, {"early": (UPDATES, FIT), "late": ([*UPDATES[:-1], math.nan], FIT)}
        ),
        "trade-off": plots.trade_off(SIZES, UPDATES, FIT, chosen=4),
        "noise and batch": plots.noise_and_critical_batch(
            {4.0: NoiseScale(5, 1, 64, 4, 6), 3.0: NoiseScale(20, 1, 64, 15, 30)}, {3.0: FIT}
        ),
        "branches": plots.branches(
            {"at once": {1: 3, 2: 3.2, 4: 3.5}, "later": {1: 2, 2: 2, 4: 2.1}}, tolerance=0.05
        ),
        "clocks": plots.three_clocks({4: history([4, 3, 2]), 16: history([4, 3.5, 3])}, target=2.5),
        "timeline of memory": plots.memory_timeline(TIMELINE),
        "fit of memory": plots.memory_against_batch(
            SIZES,
            [MIB * (3 + size) for size in SIZES],
            [MIB * (3 + size) for size in SIZES],
            fixed=3 * MIB,
            slope=MIB,
        ),
        "bars": plots.memory_bars({"few": TWO_GIB, "many": TWO_GIB + TWO_GIB}, card=3),
        "warmups": plots.loss_by_warmup(WARMED, 4, chosen=(8, 0.1)),
        "factors": plots.rate_curves({"right": [0.5, 1, 1], "wrong": [1, 1, 0.5]}),
        "orders": plots.epoch_orders(orders),
    }


def test_every_figure_is_called_from_the_room():
    for drawer in pkgutil.iter_modules(plots.__path__, "helpers.plots."):
        for name, made in vars(importlib.import_module(drawer.name)).items():
            if inspect.isfunction(made) and made.__annotations__.get("return") is plots.Picture:
                assert getattr(plots, name) is made
                assert name in plots.__all__


def test_bars_of_a_small_model_are_in_mib():
    small = Breakdown({"forward": {"parameters": 3 * 2**20}})
    (axes,) = plots.memory_bars({"small": small}).axes
    assert axes.get_xlabel().endswith("(MiB)")
    assert axes.patches[0].get_width() == 3
    (axes,) = plots.memory_bars({"small": small}, card=3).axes
    assert axes.get_xlabel().endswith("(GiB)")


@pytest.mark.parametrize("name", drawn())
def test_picture_has_labels_an_alternative_text_and_is_small(name):
    picture = drawn()[name]
    assert picture.png().startswith(b"\x89PNG")
    assert len(picture.png()) < 80_000
    assert len(picture.alt) > 40
    if name != "orders":
        for axes in picture.axes:
            assert axes.get_xlabel()
            assert axes.get_ylabel()
    assert plt.get_fignums() == []


def test_notebook_shows_a_picture_once_with_its_alternative_text():
    picture = drawn()["noise"]
    data, metadata = InteractiveShell.instance().display_formatter.format(picture)
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert metadata["image/png"]["alt"] == picture.alt
    assert "0x" not in data["text/plain"]


def test_same_batch_same_look_and_neighbours_differ():
    looks = [(plots.batch_colour(size), plots.batch_marker(size)) for size in SIZES]
    assert len(set(looks)) == len(SIZES)
    lines = drawn()["curves"].axes[0].lines
    assert [line.get_color() for line in lines] == [plots.batch_colour(4), plots.batch_colour(16)]
    assert [line.get_marker() for line in lines] == [plots.batch_marker(4), plots.batch_marker(16)]


def test_diverged_run_is_a_cross_and_the_best_has_a_ring():
    axes = drawn()["rates"].axes[0]
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    rings = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert [line.get_xdata()[0] for line in crosses] == [1e-2]
    assert sorted(line.get_xdata()[0] for line in rings) == [1e-3, 1e-2]


def words(axes):
    """Return the legend's words, or none where there is no legend."""
    legend = axes.get_legend()
    return [text.get_text() for text in legend.get_texts()] if legend else []


def test_rings_and_crosses_are_in_a_legend():
    assert words(drawn()["rates"].axes[0]) == ["best rate", "lost"]
    assert words(drawn()["landscape"].axes[0]) == ["best rate", "lost"]
    assert words(drawn()["warmups"].axes[0]) == ["chosen", "lost"]
    assert words(plots.loss_by_warmup(WARMED, 4).axes[0]) == ["lost"]
    assert words(plots.rate_landscape(swept({4: [3.0, 2.0, 2.5]})).axes[0]) == ["best rate"]


@pytest.mark.parametrize("name", ["rates", "landscape", "rules", "warmups"])
def test_crosses_lie_apart_inside_the_frame_and_rings_too(name):
    picture = drawn()[name] if name != "landscape" else plots.rate_landscape(ALL_LOST)
    picture.png()
    (axes,) = picture.axes
    frame = axes.get_window_extent()
    places = {"x": [], "o": []}
    for line in axes.lines:
        if line.get_marker() == "x" or line.get_markersize() > 12:
            half = line.get_markersize() / 2 * picture.dpi / 72
            (x, y), *more = axes.transData.transform(line.get_xydata())
            assert more == []
            assert frame.x0 <= x - half < x + half <= frame.x1
            assert frame.y0 <= y - half < y + half <= frame.y1
            places[line.get_marker()].append((x, y, 2 * half))
    for (x, y, size), (u, v, _) in combinations(places["x"], 2):
        assert math.hypot(x - u, y - v) >= size


@pytest.mark.parametrize("name", drawn())
def test_numbers_at_an_axis_do_not_touch(name):
    picture = drawn()[name]
    picture.png()
    for axes in picture.axes:
        for axis, start, end in ((axes.xaxis, "x0", "x1"), (axes.yaxis, "y0", "y1")):
            low, high = sorted(axis.get_view_interval())
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            shown = [one.label1 for one in ticks if low <= one.get_loc() <= high]
            boxes = [label.get_window_extent() for label in shown if label.get_text()]
            boxes.sort(key=lambda box: getattr(box, start))
            for one, other in pairwise(boxes):
                assert getattr(one, end) < getattr(other, start), (name, boxes)


def test_all_diverged_is_no_crash():
    picture = plots.loss_against_rate([1e-3, 1e-2], {4: [math.nan, math.nan]})
    assert picture.png()


def test_names_of_lines_do_not_overlap():
    close = {size: history([4, 3, 2 + size / 1000]) for size in SIZES}
    picture = plots.loss_curves(close)
    picture.png()
    boxes = [Text.get_window_extent(text) for text in picture.axes[0].texts]
    boxes.sort(key=lambda box: box.y0)
    assert len(boxes) == len(SIZES)
    assert all(above.y0 >= below.y1 for below, above in pairwise(boxes))


def test_ideal_of_the_noise_figure_falls_as_the_root():
    grey = drawn()["noise"].axes[0].lines[0]
    assert list(grey.get_ydata()) == pytest.approx([8, 4, 2, 1])


def test_curves_run_along_what_is_asked():
    made = history([4, 3, 2])
    ends = {
        along: plots.loss_curves({4: made}, along=along).axes[0].lines[0].get_xdata()[-1]
        for along in ("examples", "updates", "seconds")
    }
    assert ends == {"examples": 16, "updates": 2, "seconds": pytest.approx(0.2)}
    with pytest.raises(ValueError, match="along must be one of"):
        plots.loss_curves({4: made}, along="tokens")


def test_timeline_marks_every_epoch_and_the_warmup():
    axes = drawn()["timeline"].axes[0]
    ends = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    assert ends == [10, 20, 30]
    assert axes.patches[0].get_width() == 3


def test_landscape_draws_lost_runs_as_crosses_and_keeps_them_out_of_the_lines():
    axes = plots.rate_landscape(swept(LANDSCAPE)).axes[0]
    lost = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "x"]
    assert lost == [1.0, 1.0]  # batch 4 diverged, batch 64 ended above the 4.6 it began with
    lines = [list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 1]
    assert lines == [[3.0, 2.0], pytest.approx([3.2, 2.4, 3.0]), pytest.approx([3.6, 3.0])]


def test_landscape_marks_what_the_rules_predict():
    result = swept(LANDSCAPE)
    axes = plots.rate_landscape(result, chosen=64, reference=16).axes[0]
    best = result.best(16).rate
    marked = [line.get_xdata()[0] for line in axes.lines if list(line.get_ydata()) == [0, 1]]
    assert marked == pytest.approx([4 * best, 2 * best])
    faint = {line.get_alpha() for line in axes.lines if line.get_color() == plots.batch_colour(4)}
    assert faint == {0.25}


def test_landscape_of_runs_that_are_all_lost_is_no_crash():
    assert plots.rate_landscape(swept({4: [math.nan] * 3, 16: [math.nan] * 3})).png()


def test_grey_lines_of_the_best_rate_rise_as_the_rules_say():
    bests = [swept(LANDSCAPE).best(size) for size in LANDSCAPE]
    axes = plots.best_rate_against_batch({"SGD": bests}).axes[0]
    grey = [line.get_ydata() for line in axes.lines if line.get_color() == plots.GREY]
    assert [line[-1] / line[0] for line in grey] == pytest.approx([16, 4])


def test_fitted_curve_passes_through_points_that_follow_it_and_the_ideal_lies_below():
    axes = plots.steps_to_target(SIZES, {"late": (UPDATES, FIT)}).axes[0]
    perfect, curve, points, tick = axes.lines
    assert list(points.get_ydata()) == UPDATES
    assert [curve.get_ydata()[0], curve.get_ydata()[-1]] == pytest.approx([450, 56.25])
    assert [perfect.get_ydata()[0], perfect.get_ydata()[-1]] == pytest.approx([400, 6.25])
    assert (tick.get_xdata()[0], tick.get_ydata()[0]) == (8, 100)


def test_points_of_the_trade_off_lie_on_the_hyperbola():
    axes = plots.trade_off(SIZES, UPDATES, FIT).axes[0]
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines[2:]]
    assert len(points) == len(SIZES)
    for examples, updates in (*points, *zip(axes.lines[0].get_xdata(), axes.lines[0].get_ydata())):
        assert (examples - 1) * (updates - 1) == pytest.approx(1)


def test_a_batch_size_that_did_not_arrive_has_no_point():
    axes = plots.trade_off(SIZES, [*UPDATES[:-1], math.nan], FIT).axes[0]
    assert len(axes.lines[2:]) == len(SIZES) - 1


def test_branches_start_at_no_loss_added():
    axes = drawn()["branches"].axes[0]
    assert [line.get_ydata()[0] for line in axes.lines[:2]] == [0, 0]
    assert axes.lines[0].get_ydata()[-1] == 0.5


def test_clocks_run_along_updates_examples_and_seconds():
    panels = drawn()["clocks"].axes
    assert [axes.get_xlabel() for axes in panels] == ["updates", "examples", "seconds"]
    ends = [[line.get_xdata()[-1] for line in axes.lines[1:]] for axes in panels]
    assert ends == [[2, 2], [16, 16], [pytest.approx(0.2)] * 2]


def test_timeline_of_memory_stacks_the_parts_and_names_each_moment():
    axes = drawn()["timeline of memory"].axes[0]
    tops = [area.get_paths()[0].get_extents().y1 for area in axes.collections]
    assert tops == [1, 1, 1, 4, 4]  # MiB: parameters, and the activations on top of them
    assert [text.get_text().strip() for text in axes.texts] == ["forward", "backward", "update"]
    assert [line.get_xdata()[0] for line in axes.lines] == [0, 2, 3]


def test_bars_of_memory_are_in_gib_and_the_card_in_gb():
    axes = drawn()["bars"].axes[0]
    assert [bar.get_width() for bar in axes.patches[:5]] == [1, 1, 0, 0, 0]
    assert axes.lines[0].get_xdata()[0] == pytest.approx(3e9 / 2**30)
    assert [text.get_text() for text in axes.texts] == ["2.0", "4.0", "card of 3 GB"]


def test_warmups_share_a_picture_with_lost_runs_and_the_chosen_one_marked():
    axes = drawn()["warmups"].axes[0]
    lines = [list(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) > 1]
    assert lines == [[3.0, 2.0], pytest.approx([3.1, 2.1, 2.5])]
    (cross,) = (line for line in axes.lines if line.get_marker() == "x")
    assert cross.get_xdata()[0] == 1.0
    (ring,) = (line for line in axes.lines if line.get_markersize() == 14)
    assert (ring.get_xdata()[0], ring.get_ydata()[0]) == (0.1, pytest.approx(2.1))


def test_rate_and_batch_end_with_their_updates_and_tokens():
    # 4 updates of 2 and 2 of 4 are an epoch of 16; 2 more of 4, and the last of 8: 160 tokens each
    axes = plots.rate_and_batch(RAMPED).axes
    steps = [[patch.get_data() for patch in panel.patches] for panel in axes]
    rate, rate_read, batch, batch_read = ([list(run.values) for run in panel] for panel in steps)
    assert rate == rate_read == [[0.1] * 16, [0.2] * 9]
    assert batch == batch_read == [[2] * 16, [2] * 4 + [4] * 4 + [8]]
    assert list(steps[2][1].edges) == list(range(10))
    ramp = [0, 20, 40, 60, 80, 120, 160, 200, 240, 320]
    assert list(steps[3][0].edges) == list(range(0, 340, 20))
    assert list(steps[3][1].edges) == ramp
    assert [panel.get_xlabel() for panel in axes[2:]] == ["updates", "tokens"]


def test_rate_and_batch_count_examples_where_tokens_are_not_known():
    axes = plots.rate_and_batch({"plain": (RunPlan(9, 2), [0.1] * 5)}).axes
    assert axes[3].get_xlabel() == "examples"
    assert list(axes[3].patches[0].get_data().edges) == [0, 2, 4, 6, 8, 9]
    with pytest.raises(ValueError, match="got 4 rates for the 5 updates of 'plain'"):
        plots.rate_and_batch({"plain": (RunPlan(9, 2), [0.1] * 4)})
