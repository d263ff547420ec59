"""Files go along with a question; what the model can't take is said before it is sent."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.graph import DEMO, SEEING
from tests.web.browser.driving.screen import Screen


def png() -> bytes:
    """A picture of one dark pixel."""

    def chunk(name: bytes, content: bytes) -> bytes:
        checked = name + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes((0, 40, 40, 60))))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def pdf(text: str) -> bytes:
    """A page with one line."""
    drawn = zlib.compress(f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET".encode())
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(drawn), drawn),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(made)
    made += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    made += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    made += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        start,
    )
    return made


def attach(screen: Screen, *paths: Path) -> None:
    with screen.page.expect_file_chooser() as chosen:
        screen.button("Attach files").click()
        item = screen.page.get_by_role("menuitem").first
        if item.count():
            item.click()
    chosen.value.set_files(list(paths))


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("The harbour opens at nine.\n")
    return path


def content_of(screen: Screen, question: str) -> str:
    """The question as the server gets it."""
    content: str = screen.sent_by(question)["messages"][-1]["content"]
    return content


def check_opens(
    screen: Screen, place: Locator, name: str, shows: Callable[[Locator], None]
) -> None:
    place.get_by_role("button", name=f"Open {name}", exact=True).click()
    dialog = screen.role("dialog", name)
    shows(dialog)
    with screen.page.expect_download() as download:
        dialog.get_by_role("button", name="Download", exact=True).click()
    assert download.value.suggested_filename == name
    screen.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_a_text_file_goes_along_as_text(screen: Screen, notes: Path) -> None:
    def shows(dialog: Locator) -> None:
        expect(dialog).to_contain_text("The harbour opens at nine.")

    attach(screen, notes)
    attachments = screen.role("list", "Attachments")
    expect(attachments.get_by_role("button", name="Remove notes.txt")).to_be_visible()
    check_opens(screen, attachments, "notes.txt", shows)
    content = content_of(screen, "When does the harbour open?")
    assert "The harbour opens at nine." in content
    assert content.endswith("When does the harbour open?")
    check_opens(screen, screen.questions, "notes.txt", shows)
    screen.page.reload()
    expect(screen.questions).to_contain_text("notes.txt")


def test_an_attachment_can_be_removed(screen: Screen, notes: Path) -> None:
    attach(screen, notes)
    screen.button("Remove notes.txt").click()
    expect(screen.button("Remove notes.txt")).to_have_count(0)
    assert content_of(screen, "Hello!") == "Hello!"


def test_the_words_of_a_pdf_go_along(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    path.write_bytes(pdf("The ferry leaves at noon."))
    attach(screen, path)
    expect(screen.button("Remove report.pdf")).to_be_visible()
    expect(screen.role("list", "Attachments")).to_contain_text("as text")
    screen.button("Open report.pdf").click()
    expect(screen.role("dialog", "report.pdf")).to_contain_text("The ferry leaves at noon.")
    screen.page.keyboard.press("Escape")
    assert "The ferry leaves at noon." in content_of(screen, "When does the ferry leave?")


def test_a_picture_that_the_model_can_not_take_is_refused_before_it_is_sent(
    device: Device, tmp_path: Path
) -> None:
    """A model that takes it is offered, and known without being loaded."""
    screen = device(settings={"loadOn": "send"})
    path = tmp_path / "dot.png"
    path.write_bytes(png())
    attach(screen, path)
    expect(screen.role("alert")).to_contain_text("picture")
    screen.ask("What is this?")
    expect(screen.questions).to_have_count(0)
    check_opens(
        screen,
        screen.role("list", "Attachments"),
        "dot.png",
        lambda dialog: expect(dialog.get_by_role("img", name="dot.png")).to_be_visible(),
    )
    screen.button(f"Use {SEEING}").click()
    expect(screen.role("combobox", "Model")).to_contain_text(SEEING)
    expect(screen.role("alert")).to_have_count(0)
    screen.pick_model(DEMO)
    screen.button("Remove dot.png").click()
    screen.box.press("Enter")
    expect(screen.questions).to_have_count(1)
    screen.wait_for_end()


def test_a_file_that_is_no_text_is_refused_with_its_name(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "program.bin"
    path.write_bytes(bytes(range(256)) * 8)
    attach(screen, path)
    expect(screen.page.get_by_text("program.bin").first).to_be_visible()
    expect(
        screen.role("alert")
        .filter(has_text="program.bin")
        .or_(screen.role("status").filter(has_text="program.bin"))
        .first
    ).to_be_visible()
