"""The panel in a browser without a notebook: names, values in words, keys, Play."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ddpkit.view.drawing import panel
from ddpkit.view.drawing.panel import Panel
from ddpkit.view.drawing.sliders import Control, choice, link_sliders

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

STEPS = Control("Step", (0, 1, 2), ("before the first", "1 of 2", "2 of 2"), 0, "player", 100)
CONTROLS = {
    **link_sliders({"gbits": 10, "us": 200}),
    "slow": choice("Slow rank", (0, 1), 1, "rank {}".format),
    "step": STEPS,
}
PAGE = """
<!DOCTYPE html><body><div id="here"></div><script type="module">
CODE
const given = GIVEN, heard = {};
window.model = {
  get: (name) => given[name],
  set: (name, value) => { given[name] = value; heard[`change:${name}`]?.(); },
  on: (name, call) => { heard[name] = call; },
  off: () => {},
  save_changes: () => { window.model.set("said", JSON.stringify(given.at)); },
};
render({ model: window.model, el: document.getElementById("here") });
</script>
"""


def opened(browser: Browser) -> Page:
    widget = Panel(CONTROLS, lambda **at: ("<p>picture</p>", "A line\n  that goes on."))
    given = {name: getattr(widget, name) for name in ("controls", "at", "picture", "said")}
    code = Path(panel.__file__).with_suffix(".js").read_text("utf-8")
    page = browser.new_page()
    html = PAGE.replace("CODE", code.replace("export default { render };", ""))
    page.set_content(html.replace("GIVEN", json.dumps(given)))
    page.get_by_role("status").wait_for()
    return page


def test_each_control_has_a_name_and_a_value_in_words(browser: Browser):
    page = opened(browser)
    assert page.get_by_role("status").inner_text() == "A line that goes on."
    said = {
        each.get_attribute("aria-label"): each.get_attribute("aria-valuetext")
        for each in page.get_by_role("slider").all()
    }
    assert said == {"Bandwidth": "10 Gbit/s", "Latency": "200 us", "Step": "before the first"}
    assert page.get_by_role("combobox", name="Slow rank").input_value() == "1"
    for name in ("Play", "First", "Back", "Next", "Last"):
        assert page.get_by_role("button", name=name, exact=True).count() == 1
    page.close()


def test_keys_and_buttons_move_them(browser: Browser):
    page = opened(browser)
    slider, said = page.get_by_role("slider", name="Bandwidth"), page.get_by_role("status")
    slider.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "25 Gbit/s"
    assert json.loads(said.inner_text())["gbits"] == 7
    page.get_by_role("combobox").select_option("rank 0")
    assert json.loads(said.inner_text())["slow"] == 0
    steps = []
    for name in ("Next", "Next", "Next", "First", "Back", "Last", "Back"):
        page.get_by_role("button", name=name, exact=True).click()
        steps.append(json.loads(said.inner_text())["step"])
    assert steps == [1, 2, 2, 0, 0, 2, 1]
    page.close()


def test_play_goes_on_by_itself_and_stops_at_the_end(browser: Browser):
    page = opened(browser)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function("""() => model.get("at").step === 2""")
    page.get_by_role("button", name=re.compile("^Play$")).wait_for()
    page.get_by_role("button", name="Play").click()  # again, from the beginning
    page.wait_for_function("""() => model.get("at").step === 0 || model.get("at").step === 1""")
    page.close()
