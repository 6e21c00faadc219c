"""The words of `predict`'s check about wrong prices: the number of ranks, and the counts."""

import pytest

from ddpkit import answers
from ddpkit.exercises import find, judge
from ddpkit.exercises.verdict import verdict_text
from tests.labs.answers import edited


@pytest.mark.parametrize(
    ("replace", "by", "says"),
    [
        (" if n > 1 else 0.0", "", "✗ all_to_all      with 1 rank: 1 latency, expected 0\n"),
        ("(2 * up, 2 * up)", "(up, up)", "with 2 ranks: 1 latency, expected 2; with 2 ranks: 1"),
        ("(2 * up, 2 * up)", "(up, up)", "With 2 ranks you count 1 latency, not 2."),
        ("return latencies * latency + tensors * t if", "return 1e3 * (latencies * latency"
         " + tensors * t) if", "with 2 ranks: 1000 latencies, expected 1; with 2 ranks: 1000"),
        ("2 * (n - 1) / n)", "(n - 1) / n)", "with 2 ranks: 0.5 tensors, expected 1; seconds"),
    ],
)  # fmt: skip
def test_a_wrong_price_is_told_with_its_ranks(replace, by, says):
    answer = edited(answers.get("predict"), "predict-wrong_price", {replace: by})
    text = verdict_text(judge(find("predict"), answer))
    assert says in text
