"""Oracles: the sections asked for, no reference that a browser would load, figures that parse."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

import pytest
from synthetic_run import DOMAINS, EFFORTS, budgets, evaluations, job, row

from stages.evaluate.comparison import Subjects, compare, subjects_of
from stages.evaluate.report.evidence import Curve, Evidence
from stages.evaluate.report.look import RAMP, tier_colors
from stages.evaluate.report.outcome import token_distribution
from stages.evaluate.report.page import render
from stages.evaluate.report.training import MAX_POINTS, specialist_curves

SECTIONS = [
    "tokens", "accuracy", "folds", "gains", "student", "training", "signal", "operating", "budgets", "settings"
]  # fmt: skip
LOADED = {"script": ("src",), "link": ("href",), "img": ("src", "srcset"), "iframe": ("src",), "source": ("src",)}
MAX_BYTES = 8_000_000
METRICS = ("reward", "tokens", "dead_group_share", "unreachable_share")


class Page(HTMLParser):
    """What the tests look at: section ids, links, loaded references, figure data, visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.sections: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.figures: dict[str, Any] = {}
        self.words: list[str] = []
        self._figure: str | None = None
        self._hidden = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [found["id"]] if found.get("id") else []
        self.sections += [str(found["id"])] if tag == "section" else []
        self.links += [str(found["href"])] if tag == "a" else []
        self.loaded += [str(found[name]) for name in LOADED.get(tag, ()) if found.get(name)]
        self._figure = found.get("data-figure")
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._figure, self._hidden = None, False

    def handle_data(self, data: str) -> None:
        if self._figure is not None:
            self.figures[self._figure] = json.loads(data)
        elif not self._hidden:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def settings() -> dict[str, Any]:
    asked = job()
    about = {"effort": "told", "prompt form": "option", "temperature": 1.0}
    return {
        "caps": asked.caps,
        "tau": asked.tau,
        "bootstrap": asked.bootstrap,
        "consolidation": asked.student,
        "evaluations": {"cold_start": {}, "specialists": about, "student": about},
    }


@pytest.fixture(scope="module")
def subjects() -> Subjects:
    return subjects_of(evaluations(), job())


@pytest.fixture(scope="module")
def comparison(subjects: Subjects) -> dict[str, Any]:
    return compare(subjects, job(), seed=1, settings=settings())


@pytest.fixture(scope="module")
def evidence(subjects: Subjects) -> Evidence:
    curve = Curve(tuple(range(1, 31)), tuple(step / 30 for step in range(1, 31)))
    curves = {f"rl.{d}.{e}": dict.fromkeys(METRICS, curve) for d in DOMAINS for e in EFFORTS}
    return Evidence(subjects, curves, {domain: budgets(domain) for domain in DOMAINS})


@pytest.fixture(scope="module")
def html(comparison: dict[str, Any], evidence: Evidence) -> str:
    return render(comparison, evidence)


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def test_every_section_is_there_and_in_the_contents(page: Page) -> None:
    assert page.sections == SECTIONS
    assert page.links == ["#top", *(f"#{name}" for name in SECTIONS)]
    assert len(page.ids) == len(set(page.ids))


def test_nothing_is_loaded_from_anywhere(page: Page, html: str) -> None:
    """A file opened from disk without a network shows everything; the drawing script stands in it once."""
    assert page.loaded == []
    styles = html[html.index("<style>") : html.index("</style>")]
    assert "@import" not in styles
    assert "url(" not in styles
    assert html.count("<script>") == 2  # plotly, and the page's own
    assert len(html.encode()) < MAX_BYTES


def test_every_figure_has_a_place_and_something_in_it(page: Page) -> None:
    assert set(page.figures) == {f"{name}-0" for name in SECTIONS if name != "settings"}
    for name, figure in page.figures.items():
        assert name in page.ids
        assert figure["data"], name


def test_nine_specialists_lie_over_each_other(page: Page) -> None:
    """Oracle: reward and tokens of three tiers in three domains; a tier has one colour everywhere."""
    traces = page.figures["training-0"]["data"]
    assert len(traces) == 2 * 9
    colors = {trace["name"]: trace["line"]["color"] for trace in traces}
    assert colors == tier_colors(EFFORTS) == {"low": RAMP[0], "high": RAMP[3], "max": RAMP[6]}
    assert {trace["name"] for trace in traces if trace["showlegend"]} == set(EFFORTS)


def test_accuracy_against_tokens_shows_every_subject(comparison: dict[str, Any], page: Page) -> None:
    """Oracle: the comparison's own numbers, low to max, in each domain's panel."""
    traces = [trace for trace in page.figures["accuracy-0"]["data"] if not trace.get("showlegend", True)]
    assert len(traces) == 3 * len(DOMAINS)
    for index, domain in enumerate(DOMAINS):
        for subject, trace in zip(("specialists", "student"), traces[3 * index :], strict=False):
            cells = [comparison["subjects"][subject][f"{domain}.{effort}"] for effort in EFFORTS]
            assert trace["x"] == [cell["tokens"]["mean"] for cell in cells]
            assert trace["y"] == [cell["accuracy"]["value"] for cell in cells]
            upper = [value + above for value, above in zip(trace["y"], trace["error_y"]["array"], strict=True)]
            assert upper == pytest.approx([cell["accuracy"]["high"] for cell in cells])


def test_length_curves_hold_every_response(page: Page) -> None:
    """Oracle: shares of all bins add up to 1, also for the response at the longest length."""
    for trace in page.figures["tokens-0"]["data"]:
        assert sum(trace["y"]) == pytest.approx(1, abs=1e-3)


def test_lengths_of_very_different_size_get_a_logarithmic_axis() -> None:
    """Oracle: shares still add up to 1; a response of no tokens stands at the left end instead of at minus infinity."""
    one = job(("code",), ("low", "max"), bootstrap=100)
    lengths = {"low": (0, 900, 1000, 1100), "max": (20_000, 30_000, 40_000, 41_000)}
    cells = {
        f"code.{effort}": [row(f"code.{effort}", f"p{index}", length, True) for index, length in enumerate(of)]
        for effort, of in lengths.items()
    }
    cold = [row("code", f"p{index}", 5000, True) for index in range(4)]
    student = [item for found in cells.values() for item in found]
    subjects = subjects_of({"cold_start": cold, "student": student, **cells}, one)
    figure = token_distribution({"domains": ["code"], "efforts": ["low", "max"]}, subjects)
    assert figure.layout.xaxis.type == figure.layout.xaxis2.type == "log"
    for trace in figure.data:
        assert sum(trace.y) == pytest.approx(1)
        assert min(trace.x) >= 1


def test_the_heat_maps_show_the_recovery_table(comparison: dict[str, Any], page: Page) -> None:
    points, recovery, ratio = page.figures["student-0"]["data"]
    for line, domain in enumerate(DOMAINS):
        for column, effort in enumerate(EFFORTS):
            cell = comparison["recovery"][f"{domain}.{effort}"]
            assert points["text"][line][column] == f"{cell['student_minus_teacher_points']['value']:+.1f}"
            assert ratio["text"][line][column] == f"{cell['token_ratio']['value']:.2f}"
            shown = "n/a" if cell["recovery"] is None else f"{cell['recovery']:.0%}"
            assert recovery["text"][line][column] == shown
    assert "n/a" in recovery["text"][0]  # the lowest tier trades accuracy for length


def test_the_header_gives_the_verdict(comparison: dict[str, Any], evidence: Evidence) -> None:
    checks = comparison["checks"]
    passed = [{**check, "passed": True} for check in checks]
    broken = [{**passed[0], "passed": False, "value": None, "detail": "a <b>sharp</b> detail"}, *passed[1:]]
    good, bad = (render({**comparison, "checks": found}, evidence) for found in (passed, broken))
    assert f"all {len(checks)} checks passed" in good
    assert f"1 of {len(checks)} checks failed" in bad
    assert "a &lt;b&gt;sharp&lt;/b&gt; detail" in bad
    assert "<b>sharp</b>" not in bad


def test_settings_are_stated(page: Page) -> None:
    for words in ("general 110", "low 0.55", "effort told", "prompt form option", "temperature 1.0", "not recorded"):
        assert words in page.text


def test_without_training_or_budgets_a_line_says_why(comparison: dict[str, Any], subjects: Subjects) -> None:
    page = Page(render(comparison, Evidence(subjects, {}, {})))
    assert page.sections == SECTIONS
    assert {"training-0", "signal-0", "budgets-0"}.isdisjoint(page.figures)
    for line in ("no specialist left a training log", "logged its dead and unreachable", "no budget table"):
        assert line in page.text


def test_a_run_whose_specialists_were_partly_trained_elsewhere(comparison: dict[str, Any], evidence: Evidence) -> None:
    """One curve of nine is drawn alone, with its tier in the legend."""
    one = {"rl.code.max": evidence.curves["rl.code.max"], "sft": {"loss": Curve((1,), (2.0,))}}
    figure = specialist_curves(comparison, one)
    assert [(trace.name, trace.showlegend) for trace in figure.data] == [("max", True), ("max", False)]


def test_a_long_curve_is_drawn_as_means_of_stretches(comparison: dict[str, Any]) -> None:
    """Oracle: 1200 points of 0..1199 in stretches of three keep their mean and their order."""
    curve = Curve(tuple(range(1, 1201)), tuple(float(step) for step in range(1200)))
    (trace,) = specialist_curves(comparison, {"rl.code.low": {"reward": curve}}).data
    assert len(trace.x) == len(trace.y) == MAX_POINTS
    assert sum(trace.y) / MAX_POINTS == pytest.approx(599.5)
    assert list(trace.y) == sorted(trace.y)


def test_text_in_a_figure_cannot_end_its_script(html: str, page: Page) -> None:
    """Figures hold markup for plotly; in the page it stands escaped, and the parser finds it whole."""
    assert "\\u003cb\\u003egeneral\\u003c\\u002fb\\u003e" in html
    titles = [note["text"] for note in page.figures["folds-0"]["layout"]["annotations"]]
    assert "<b>general</b>" in titles


def test_the_same_run_gives_the_same_page(comparison: dict[str, Any], evidence: Evidence, html: str) -> None:
    assert render(comparison, evidence) == html


def test_more_tiers_than_colours_start_again() -> None:
    efforts = [f"t{index}" for index in range(len(RAMP) + 1)]
    assert tier_colors(efforts)["t0"] == tier_colors(efforts)[f"t{len(RAMP)}"]
    assert tier_colors(["only"]) == {"only": RAMP[0]}
