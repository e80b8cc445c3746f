"""Foreign text cannot act on a terminal, and is short."""

import json
import logging
import threading

import pytest

from gnnrp.runtime import checks, safe_text

HOSTILE = "\x1b]0;title\x07\x9b31m\u202egpj.\u2066\u200b\ud800"


def test_characters_that_a_terminal_acts_on_are_spelled():
    spelled = safe_text.escape(f"a{HOSTILE}b")
    assert spelled.startswith(r"a\u001b]0;title\u0007\u009b31m\u202egpj.\u2066\u200b")
    assert spelled.isprintable()
    assert safe_text.escape("η² of Größe\n日本") == "η² of Größe\n日本"


def test_spelled_characters_are_those_of_json():
    assert json.loads(safe_text.escape('"\x9b\u202e\x7f"')) == "\x9b\u202e\x7f"


@pytest.mark.parametrize("size", [0, 300, 301, 5_000_000])
def test_a_message_is_one_short_line_that_keeps_its_end(size):
    found = safe_text.line("what\nis " + "x" * size + "\r\n; the remedy")
    assert len(found) <= safe_text.LIMIT
    assert "\n" not in found
    assert found.startswith("what is x"[: 8 + size])
    assert found.endswith("; the remedy")


class Speaking:
    def __repr__(self):
        return HOSTILE * 1000


def nested(depth):
    value = ()
    for _ in range(depth):
        value = (value, value)
    return value


@pytest.mark.parametrize(
    "value",
    [Speaking(), HOSTILE * 1000, nested(40), [[["x" * 99] * 99] * 99] * 99, 10**5000],
    ids=["speaking", "text", "deep", "wide", "digits"],
)
def test_a_value_in_a_message_is_short_and_harmless(value):
    found = checks.format_value(value)
    assert len(found) <= 80
    assert found.isprintable()


def test_a_number_of_any_length_is_refused_in_a_short_message():
    for number in (10**4000, 10**5000, -(10**4000), -(10**5000)):
        with pytest.raises(
            ValueError, match=r"power must be at (least|most)"
        ) as caught:
            checks.count("power", number, 0)
        assert len(str(caught.value)) < safe_text.LIMIT
        with pytest.raises(ValueError, match="gamma must be a number that a") as caught:
            checks.positive("gamma", number)
        assert len(str(caught.value)) < safe_text.LIMIT


def test_a_logger_is_quiet_while_any_thread_wants_that_and_keeps_its_level():
    logger, heard = logging.getLogger("of a library"), []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    entered, left = threading.Barrier(2), threading.Barrier(2)

    def late():
        with safe_text.silence(logger):
            entered.wait()
            left.wait()

    thread = threading.Thread(target=late)
    with safe_text.silence(logger):
        thread.start()
        entered.wait()
    logger.error("one thread is still inside")
    left.wait()
    thread.join()
    assert logger.level == logging.INFO
    logger.info("heard again")
    assert heard == ["heard again"]
