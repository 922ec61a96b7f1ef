"""What a question on a concept is: answers of which one is right, each with its why."""

import html
import textwrap
from dataclasses import dataclass

WIDTH = 80


@dataclass(frozen=True)
class Answer:
    """A possible answer, and why it is right or not."""

    text: str
    why: str
    right: bool


@dataclass(frozen=True)
class Question:
    """A question with its answers, and the number of the verdict that it is drawn from, if any."""

    text: str
    answers: tuple[Answer, ...]
    verdict: str = ""


def ask(text: str, *answers: Answer, verdict: str = "") -> Question:
    """Return a question with these answers."""
    return Question(text, answers, verdict)


def yes(text: str, why: str) -> Answer:
    """Return the right answer to a question, with the reason."""
    return Answer(text, why, right=True)


def no(text: str, why: str) -> Answer:
    """Return a wrong answer to a question, with what is wrong about it."""
    return Answer(text, why, right=False)


@dataclass(frozen=True, repr=False)
class Quiz:
    """The questions on a notebook: as folds to open in a notebook or on a page, as a list in text.

    There is no script and no style sheet in it, so that it works where a page is not trusted, and
    without a kernel. A fold is opened by a click, or with Tab and Enter.
    """

    number: int
    questions: tuple[Question, ...]

    def __repr__(self) -> str:
        lines = [f"Questions on notebook {self.number:02}"]
        for place, question in enumerate(self.questions, start=1):
            lines.append(_filled(f"{place}. ", _asked(question)))
            for letter, answer in zip("abcd", question.answers):
                lines.append(_filled(f"   {letter}. ", answer.text))
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return (
            f"<p><strong>Questions on notebook {self.number:02}.</strong> Open the answer that you "
            "take for right. It says why it is, or why not.</p>"
            f"<ol>{''.join(map(_question_html, self.questions))}</ol>"
        )


def _asked(question: Question) -> str:
    return f"{question.text} [{question.verdict}]" if question.verdict else question.text


def _filled(head: str, text: str) -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )


def _question_html(question: Question) -> str:
    answers = "".join(
        f'<details style="margin: 6px 0"><summary style="cursor: pointer">{letter}. '
        f"{html.escape(answer.text)}</summary>"
        f'<p style="margin: 4px 0 12px 18px"><strong>{"✓ Right." if answer.right else "✗ No."}'
        f"</strong> {html.escape(answer.why)}</p></details>"
        for letter, answer in zip("abcd", question.answers)
    )
    return f'<li style="margin: 18px 0"><p>{html.escape(_asked(question))}</p>{answers}</li>'
