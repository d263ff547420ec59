"""Chats are found by words in them, pinned, renamed, deleted, exported and imported."""

import json
from pathlib import Path

from playwright.sync_api import expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.graph import key_of
from tests.web.browser.driving.screen import Screen


def test_a_chat_is_found_by_words_of_an_answer(screen: Screen) -> None:
    seal = "A seal.\n\n" + "Waves.\n\n" * 40
    for question, answer in (("First question", "A heron"), ("Second question", seal)):
        screen.button("New chat").click()
        screen.next_answer(answer)
        screen.ask_and_wait(question)
    search = screen.role("searchbox", "Search chats")
    search.fill("heron")
    expect(screen.chats).to_have_count(1)
    screen.chat("First question").click()
    expect(screen.answers).to_contain_text("A heron")
    search.fill("seal")
    expect(screen.chats).to_contain_text("A seal. Waves.")
    screen.chat("Second question").click()
    expect(screen.answers.get_by_text("A seal.")).to_be_in_viewport()
    search.fill("nothing has this")
    expect(screen.chats).to_have_count(0)
    search.fill("")
    expect(screen.chats).to_have_count(2)


def test_a_chat_is_renamed_pinned_and_deleted(screen: Screen) -> None:
    screen.next_answer("One.")
    screen.ask_and_wait("An old chat")
    screen.button("New chat").click()
    screen.next_answer("Two.")
    screen.ask_and_wait("A new chat")
    screen.choose_in_chat_menu("An old chat", "Rename")
    field = screen.chats.get_by_role("textbox")
    field.fill("A better name")
    field.press("Enter")
    expect(screen.chat("A better name")).to_be_visible()
    screen.choose_in_chat_menu("A better name", "Pin")
    expect(screen.chats.first).to_contain_text("A better name")
    screen.page.reload()
    expect(screen.chats.first).to_contain_text("A better name")
    screen.choose_in_chat_menu("A better name", "Unpin")
    expect(screen.chats.first).to_contain_text("A new chat")
    screen.choose_in_chat_menu("A new chat", "Delete")
    dialog = screen.role("alertdialog", "Delete chat?")
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    expect(screen.chats).to_have_count(2)
    screen.choose_in_chat_menu("A new chat", "Delete")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(screen.chats).to_have_count(1)
    expect(screen.answers).to_have_count(0)


def test_a_long_chat_of_another_program_goes_on_without_its_beginning(
    screen: Screen, tmp_path: Path
) -> None:
    """llama-server's page exported it. It is counted when it is opened."""
    words = "The harbour opens at nine and closes at five. " * 10
    messages = [
        {
            "id": str(number),
            "parent": str(number - 1) if number else None,
            "type": "text",
            "role": ("user", "assistant")[number % 2],
            "content": f"{number}. {words}",
            "timestamp": 1_760_000_000_000 + number,
        }
        for number in range(40)
    ]
    conversation = {"id": "c", "name": "From elsewhere", "currNode": "39", "lastModified": 1}
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"conv": conversation, "messages": messages}], indent=1))
    dialog = screen.open_settings("Data")
    with screen.page.expect_file_chooser() as chosen:
        dialog.get_by_role("button", name="Import chats").click()
    chosen.value.set_files(path)
    screen.page.keyboard.press("Escape")
    screen.chat("From elsewhere").click()
    screen.button("Leave out the oldest messages").click()
    expect(screen.log).to_contain_text("The model is not sent what is above")
    body = screen.sent_by("When does it open?")
    assert 2 < len(body["messages"]) < 20
    screen.button("Send it again").click()
    expect(screen.log).not_to_contain_text("The model is not sent what is above")


def test_an_exported_chat_is_imported_elsewhere(device: Device, key: str, tmp_path: Path) -> None:
    mine = device()
    mine.next_answer("Answer one.")
    mine.next_answer("Answer two.")
    mine.ask_and_wait("To be taken along")
    mine.act(mine.answers, "Regenerate")
    expect(mine.answers).to_contain_text("Answer two.")
    mine.wait_for_end()
    with mine.page.expect_download() as got:
        mine.choose_in_chat_menu("To be taken along", "Export")
    path = tmp_path / got.value.suggested_filename
    got.value.save_as(path)
    assert key not in path.read_text()
    theirs = device(of=key_of(197))
    dialog = theirs.open_settings("Data")
    with theirs.page.expect_file_chooser() as chosen:
        dialog.get_by_role("button", name="Import chats").click()
    chosen.value.set_files(path)
    theirs.page.keyboard.press("Escape")
    theirs.chat("To be taken along").click()
    expect(theirs.answers).to_contain_text("Answer two.")
    theirs.act(theirs.answers, "Previous branch")
    expect(theirs.answers).to_contain_text("Answer one.")
