"""Garbage is collected seldom while a model is compiled, and as before afterwards."""

import gc
import threading

import pytest

from rammer.pipelines.garbage import seldom_collected


@pytest.fixture(autouse=True)
def _thresholds():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_what_was_set_holds_again_after_an_error():
    with pytest.raises(ZeroDivisionError), seldom_collected():
        gc.set_threshold(1 // 0)
    assert gc.get_threshold() == (700, 10, 10)


def test_the_last_thread_sets_what_was_there_before_the_first():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with seldom_collected():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with seldom_collected():
        assert gc.get_threshold()[0] > 10_000
        thread.start()
        assert entered.wait(300)
    assert gc.get_threshold()[0] > 10_000
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def test_who_collects_nothing_goes_on_so():
    gc.set_threshold(0)
    with seldom_collected():
        assert gc.get_threshold()[0] == 0
