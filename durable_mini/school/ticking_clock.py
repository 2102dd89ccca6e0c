"""A clock that counts in the page itself: no message from the kernel, nothing to stop.

Guarantees: it goes on where it would be had it run all the time, so it can be shown again.
Leaves to others: deciding anything by it. What counts is the time that was recorded.
"""

from __future__ import annotations

_STYLE = """<style>
@property --quiz-s {syntax: '<integer>'; initial-value: 0; inherits: false}
@keyframes quiz-clock {from {--quiz-s: 0} to {--quiz-s: 86400}}
.quiz-clock::after {
  animation: quiz-clock 86400s linear var(--quiz-late) forwards;
  counter-reset: s var(--quiz-s);
  content: counter(s);
}
</style>"""


def running(elapsed_s: float, limit_s: float) -> str:
    """HTML of a clock that has run for a while already."""
    late = f"--quiz-late: -{max(elapsed_s, 0.0):.0f}s"
    return (
        f'{_STYLE}<p><span class="quiz-clock" style="{late}" role="timer" aria-live="off"></span>'
        f" of {limit_s:.0f} seconds</p>"
    )


def stood(seconds: float) -> str:
    """HTML of a clock that was stopped."""
    return f"<p>{seconds:.0f} seconds.</p>"
