"""Reads the heads of MPEG's frames: where the sound of an MP3 file begins, and how long it is."""

from typing import NamedTuple

ID3, ID3_HEAD = b"ID3", 10
MAX_JUNK = 64 << 10  # bytes before the first frame
HEAD = 4
# Of a frame of layer III, by the bits of its head: kbit/s, and samples a second.
KBITS = {
    1: (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
LENGTH_TAGS = (b"Xing", b"Info")  # in the first frame; the number of frames stands behind them
TAG_BYTES = 64
MAX_PADDING = 3  # frames that the encoder added, and a decoder leaves out


class MpegFrame(NamedTuple):
    n_bytes: int
    n_samples: int
    rate: int


def is_frame(data: bytes) -> bool:
    """Whether a frame of layer III, or one of AAC, may begin here."""
    return len(data) > 1 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0 and data[1] & 6 in (0, 2)


def is_layer_3(data: bytes) -> bool:
    """Whether a frame is one of layer III."""
    return data[1] & 6 == 2


def behind_tags(data: bytes) -> int:
    """Finds the end of the ID3 tags that the file begins with. Their lengths have 7 bits a byte."""
    at = 0
    while data.startswith(ID3, at) and at + ID3_HEAD <= len(data):
        size = 0
        for byte in data[at + 6 : at + ID3_HEAD]:
            size = size << 7 | byte & 0x7F
        at += ID3_HEAD + size
    return at


def first_frame(data: bytes) -> int | None:
    """Finds the beginning of an MP3 file's sound: two frames that follow each other."""
    begin = behind_tags(data)
    at = data.find(b"\xff", begin, begin + MAX_JUNK)
    while at >= 0:
        frame = _frame(data, at)
        if frame and _frame(data, at + frame.n_bytes):
            return at
        at = data.find(b"\xff", at + 1, begin + MAX_JUNK)
    return None


def declared_s(data: bytes) -> float:
    """The least seconds that an MP3 file says it has, which begins with a frame; 0 for none."""
    frame, head = _frame(data, 0), data[:TAG_BYTES]
    at = max(head.find(tag) for tag in LENGTH_TAGS)
    if frame is None or at < 0 or not int.from_bytes(data[at + 4 : at + 8], "big") & 1:
        return 0.0
    n_frames = int.from_bytes(data[at + 8 : at + 12], "big") - MAX_PADDING
    return max(0, n_frames) * frame.n_samples / frame.rate


def _frame(data: bytes, at: int) -> MpegFrame | None:
    """Reads the head of a frame; None for what is no frame of layer III."""
    head = data[at : at + HEAD]
    if len(head) < HEAD or not is_frame(head) or not is_layer_3(head):
        return None
    version, bits, rate = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
    if version not in RATES or bits in (0, 15) or rate == 3:
        return None
    n_samples = 1152 if version == 3 else 576
    hertz, kbits = RATES[version][rate], KBITS[1 if version == 3 else 2][bits]
    n_bytes = n_samples // 8 * kbits * 1000 // hertz + (head[2] >> 1 & 1)
    return MpegFrame(n_bytes, n_samples, hertz)
