"""Messages are never overwritten: editing and asking again make branches."""

import pytest
from playwright.sync_api import Locator, expect

from tests.web.browser.driving.screen import Screen


def branch(message: Locator, text: str) -> None:
    expect(message.get_by_role("status", name=text, exact=True)).to_be_visible()


def confirm(screen: Screen) -> None:
    """Confirms a deletion, as the page asks once more."""
    dialog = screen.role("alertdialog")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog).to_have_count(0)


def test_an_edited_question_is_a_branch_and_the_old_one_stays(screen: Screen) -> None:
    """And one whose edit is given up is none."""
    screen.next_answer("Paris it is.")
    screen.next_answer("Oslo it is.")
    screen.ask_and_wait("What is the capital of France?")
    screen.act(screen.questions, "Edit message")
    field = screen.role("textbox", "Edit message")
    field.fill("Something else")
    screen.button("Cancel").click()
    expect(screen.questions).to_contain_text("What is the capital of France?")
    expect(field).to_have_count(0)
    expect(screen.role("status").filter(has_text="Branch")).to_have_count(0)
    screen.act(screen.questions, "Edit message")
    expect(field).to_have_value("What is the capital of France?")
    field.fill("What is the capital of Norway?")
    screen.button("Save as new branch").click()
    expect(screen.answers).to_contain_text("Oslo it is.")
    screen.wait_for_end()
    branch(screen.questions, "Branch 2 of 2")
    screen.act(screen.questions, "Previous branch")
    branch(screen.questions, "Branch 1 of 2")
    expect(screen.questions).to_contain_text("France")
    expect(screen.answers).to_contain_text("Paris it is.")
    screen.page.reload()
    expect(screen.answers).to_contain_text("Paris it is.")
    screen.act(screen.questions, "Next branch")
    expect(screen.answers).to_contain_text("Oslo it is.")


def test_an_answer_is_asked_for_again_and_both_stay(screen: Screen) -> None:
    for text in ("The first answer.", "The second answer."):
        screen.next_answer(text)
    screen.ask_and_wait("Say something")
    screen.act(screen.answers, "Regenerate")
    expect(screen.answers).to_contain_text("The second answer.")
    screen.wait_for_end()
    branch(screen.answers, "Branch 2 of 2")
    screen.act(screen.answers, "Previous branch")
    expect(screen.answers).to_contain_text("The first answer.")


@pytest.mark.exhaustive  # as a question is
def test_an_answer_can_be_edited_too(screen: Screen) -> None:
    screen.next_answer("What the model said.")
    screen.ask_and_wait("Say something")
    screen.act(screen.answers, "Edit message")
    screen.role("textbox", "Edit message").fill("What I wanted to hear.")
    screen.button("Save as new branch").click()
    expect(screen.answers).to_contain_text("What I wanted to hear.")
    branch(screen.answers, "Branch 2 of 2")
    screen.act(screen.answers, "Previous branch")
    expect(screen.answers).to_contain_text("What the model said.")


def test_a_chat_is_forked_at_a_message(screen: Screen) -> None:
    for text in ("Answer one.", "Answer two."):
        screen.next_answer(text)
    screen.ask_and_wait("Question one")
    screen.ask_and_wait("Question two")
    expect(screen.chats).to_have_count(1)
    screen.act(screen.answers.first, "Fork chat")
    expect(screen.chats).to_have_count(2)
    expect(screen.questions).to_have_count(1)
    expect(screen.answers).to_contain_text("Answer one.")
    screen.next_answer("Answer of the fork.")
    screen.ask_and_wait("Question of the fork")
    screen.chats.get_by_role("link").filter(has_text="Question one").last.click()
    expect(screen.answers.last).to_contain_text("Answer two.")
    expect(screen.page.get_by_text("Answer of the fork.")).to_have_count(0)


@pytest.mark.exhaustive  # stores/conversations.test.ts says it
def test_a_message_is_deleted_with_all_below_it(screen: Screen) -> None:
    for text in ("Answer one.", "Answer two."):
        screen.next_answer(text)
    screen.ask_and_wait("Question one")
    screen.ask_and_wait("Question two")
    screen.act(screen.questions.last, "Delete message")
    confirm(screen)
    expect(screen.role("article")).to_have_count(2)
    expect(screen.answers).to_contain_text("Answer one.")
    screen.page.reload()
    expect(screen.answers).to_contain_text("Answer one.")
    expect(screen.role("article")).to_have_count(2)


def test_a_stopped_answer_goes_on(screen: Screen, slow_url: str) -> None:
    screen.endless_answer(slow_url)
    screen.ask("Tell me a story about a hedgehog named Bruno.")
    screen.wait_for_words(4)
    screen.button("Stop generating").click()
    expect(screen.button("Send message")).to_be_visible()
    kept = screen.answers.get_by_role("paragraph").first.inner_text().split()[:-1]
    screen.next_answer(" and they lived happily ever after.")
    screen.act(screen.answers, "Continue")
    expect(screen.answers).to_contain_text("and they lived happily ever after.")
    screen.wait_for_end()
    words = screen.answers.get_by_role("paragraph").first.inner_text().split()
    assert words[: len(kept)] == kept
    expect(screen.answers.get_by_role("button", name="Next branch")).to_have_count(0)
    expect(screen.button("Continue")).to_have_count(0)
