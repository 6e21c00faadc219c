"""A prediction beside the measured value."""

import math

import pytest
import torch

from ddpkit import beside


@pytest.mark.parametrize(
    ("prediction", "measured", "unit", "said"),
    [
        (135, 139.4, "ms", "predicted 135 ms\nmeasured  139 ms   measured ÷ predicted 1.03\n"),
        (
            torch.tensor(350415),
            350415,
            "bytes",
            "measured  350,415 bytes   measured ÷ predicted 1.00",
        ),
        (0.5, 1, "", "predicted 0.5\nmeasured  1   measured ÷ predicted 2.00\n"),
        (0, 4, "", "measured  4   which is not nothing"),
        (..., 4.0, "ms", "measured  4 ms\nNo prediction yet: write a number in place of the dots"),
        ("4 x 33", 4, "ms", "'4 x 33' is no number."),
        (None, 4, "ms", "None is no number."),
        (math.inf, 4, "ms", "inf is no number."),
        (torch.ones(2), 4, "ms", "is no number."),
        (135, 0, "ms", "Nothing was measured here.\n"),
        (135, None, "ms", "Nothing was measured here.\n"),
    ],
)
def test_whatever_was_predicted_it_says_what_came_out(prediction, measured, unit, said, capsys):
    beside(prediction, measured, unit)
    assert said in capsys.readouterr().out
