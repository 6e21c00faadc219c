"""Lab 15's language: each dialect has other letters, and the entropy is the least loss."""

from __future__ import annotations

import numpy as np
import pytest

from ddpkit.capstone.language import ALPHABET, DIALECTS, OWN, Language


def test_dialects_share_no_letter_and_a_text_has_its_dialects_letters_alone() -> None:
    language = Language(3)
    assert sorted(language.letters.ravel()) == list(range(len(ALPHABET)))
    for dialect in range(DIALECTS):
        text = language.stretches(dialect, 200, 33, 0)
        assert set(text.ravel()) == set(language.letters[dialect])


def test_a_text_is_that_of_its_seed_and_stream() -> None:
    def text(seed: int, dialect: int = 0, stream: int = 0) -> list[list[int]]:
        return Language(seed).stretches(dialect, 4, 33, stream).tolist()  # type: ignore[no-any-return]

    assert text(1) == text(1)
    assert text(1) != text(1, stream=1)
    assert text(1) != text(2)


def test_languages_are_no_exchange_of_letters() -> None:
    """The tables of two languages differ under each order of their letters."""
    one, other = (np.sort(Language(seed).tables.ravel()) for seed in (1, 2))
    assert not np.allclose(one, other)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_entropy_is_the_loss_of_a_model_that_knows_the_tables(seed: int) -> None:
    """The loss of a model with the true tables, measured on 12,800 letters of each dialect."""
    language, losses = Language(seed), []
    for dialect in range(DIALECTS):
        place = {letter: i for i, letter in enumerate(language.letters[dialect].tolist())}
        text = np.vectorize(place.get)(language.stretches(dialect, 200, 65, 5))
        losses.append(-np.log(language.tables[dialect][text[:, :-1], text[:, 1:]]).mean())
        assert language.usual[dialect].sum() == pytest.approx(1)
    assert np.mean(losses) == pytest.approx(language.entropy, abs=0.02)
    assert 1.0 < language.entropy < np.log(OWN)
