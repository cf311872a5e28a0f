"""Two parts of a piece of work in two threads: results, errors, and stopping."""

import threading

import pytest

from vages.app.output.console import StageBar
from vages.app.runs.side_by_side import side_by_side

LONG = 60  # seconds that a healthy run never waits


def test_both_run_at_the_same_time():
    first, second = threading.Event(), threading.Event()

    def here():
        first.set()
        return second.wait(LONG), "here"

    def there(check):
        second.set()
        check()
        return first.wait(LONG), "there"

    assert side_by_side(here, there) == ((True, "here"), (True, "there"))


@pytest.mark.parametrize("error", [ValueError("its error"), KeyboardInterrupt()])
def test_one_that_fails_ends_the_other(error):
    started, passed = threading.Event(), []

    def here():
        assert started.wait(LONG)
        raise error

    def there(check):
        started.set()
        while len(passed) < 100 * LONG:  # a loop that ends only because `check` raises
            check()
            passed.append(threading.Event().wait(0.01))
        raise AssertionError("never told to end")

    with pytest.raises(type(error)) as caught:
        side_by_side(here, there)
    assert caught.value is error
    assert len(passed) < 100 * LONG


def test_an_error_in_the_thread_is_raised():
    def there(check):
        raise ValueError("of the thread")

    with pytest.raises(ValueError, match="^of the thread$"):
        side_by_side(lambda: 1, there)


def test_a_bar_for_each_thread():
    """Progress of one does not move the other's bar, and a new part replaces the own one alone."""

    class Progress:
        disable = False

        def __init__(self):
            self.names, self.done = {}, {}

        def add_task(self, name, total):
            self.names[(task := len(self.done))] = name
            self.done[task] = None
            return task

        def remove_task(self, task):
            del self.names[task]

        def update(self, task, completed, total):
            self.done[task] = (completed, total)

    progress = Progress()
    bar = StageBar(progress)

    def there(check):
        bar.stage("there")
        bar(1, 2)

    bar.stage("here, first")
    side_by_side(lambda: None, there)
    bar.stage("here, second")
    assert sorted(progress.names.values()) == ["here, second", "there"]
    assert progress.done == {0: None, 1: (1, 2), 2: None}
