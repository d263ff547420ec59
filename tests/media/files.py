"""Files as clients send them, and as those send them who mean no good."""

import struct
import wave
import zlib
from io import BytesIO

import av
import numpy as np
import pypdfium2
from av.audio.stream import AudioStream
from numpy.typing import NDArray
from PIL import Image

RATE = 16_000
# A frame of MPEG 1 layer III that is silent: 32 kbit/s at 44,100 samples a second.
MP3_FRAME = b"\xff\xfb\x10\xc4" + bytes(100)


def image(size: tuple[int, int] = (64, 48), form: str = "PNG", color: str = "red") -> bytes:
    file = BytesIO()
    Image.new("RGB", size, color).save(file, form)
    return file.getvalue()


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, *chunks: bytes, data: bytes = b"") -> bytes:
    """Makes a PNG with one bit a pixel."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", data)
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + pixels + chunk(b"IEND", b"")


def png_bomb(width: int, height: int) -> bytes:
    """Many of its pixels are there, in a few kilobytes."""
    rows = bytes((1 + (width + 7) // 8) * min(height, 6000))
    return png(width, height, data=zlib.compress(rows))


def wav(n_samples: int = RATE, *, rate: int = RATE, channels: int = 1) -> bytes:
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(b"\1\0" * n_samples * channels)
    return file.getvalue()


def sound(
    samples: NDArray[np.int16] | NDArray[np.float32],
    rate: int = RATE,
    form: str = "wav",
    codec: str = "",
    *,
    is_piped: bool = False,
    **options: str,
) -> bytes:
    """Samples are of one channel, or [channels, samples]. A file that is piped has no lengths that
    are known when all is written."""
    given = np.atleast_2d(samples)
    layout = "mono" if len(given) == 1 else f"{len(given)}c" if len(given) > 2 else "stereo"
    frame = av.AudioFrame.from_ndarray(
        np.ascontiguousarray(given.T.reshape(1, -1)),
        "s16" if given.dtype == np.int16 else "flt",
        layout,
    )
    frame.sample_rate = rate
    codec = codec or ("pcm_s16le" if given.dtype == np.int16 else "pcm_f32le")
    file = BytesIO()
    with av.open(_Pipe(file) if is_piped else file, "w", form, options=options) as container:
        stream = container.add_stream(codec, rate=rate, layout=layout)
        assert isinstance(stream, AudioStream)
        fitted = av.AudioResampler(
            stream.format.name, layout, rate, stream.codec_context.frame_size or None
        )
        for part in (*fitted.resample(frame), *fitted.resample(None)):
            container.mux(stream.encode(part))
        container.mux(stream.encode(None))
    return file.getvalue()


class _Pipe:
    """A file that can only be written to."""

    def __init__(self, file: BytesIO) -> None:
        self._file = file

    def write(self, data: bytes) -> int:
        return self._file.write(data)


def pdf(n_pages: int = 1, text: str = "Hello page") -> bytes:
    """Pages with one line of text each."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = b" ".join(b"%d 0 R" % (4 + 2 * page) for page in range(n_pages))
    objects.append(b"<< /Type /Pages /Kids [%b] /Count %d >>" % (kids, n_pages))
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for page in range(n_pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 100] /Contents %d 0 R "
            b"/Resources << /Font << /F 3 0 R >> >> >>" % (5 + 2 * page)
        )
        line = b"BT /F 12 Tf 20 50 Td (%b) Tj ET" % text.encode()
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(line), line))
    file, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(file))
        file += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start = len(file)
    file += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    file += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    file += b"trailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1,
        start,
    )
    return bytes(file)


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def large_jpeg() -> bytes:
    """One that says it has 65,535 x 65,535 pixels."""
    data = image(form="JPEG")
    return patched(data, data.index(b"\xff\xc0") + 5, b"\xff\xff\xff\xff")


def text_bomb() -> bytes:
    packed = zlib.compress(bytes(64 << 20), 9)
    return png(8, 8, chunk(b"zTXt", b"Comment\0\0" + packed), data=zlib.compress(bytes(16)))


def locked_pdf() -> bytes:
    """Its trailer says that it is encrypted, in a way that nobody knows."""
    return pdf().replace(b"/Root 1 0 R", b"/Root 1 0 R /Encrypt << /Filter /Own /V 9 >>")


IMAGES: dict[str, bytes] = {
    "junk": b"junk" * 100,
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    "html": b"<!doctype html><script>alert(1)</script>",
    "a png that is cut off": image((640, 480))[:-40],
    "a jpeg that is cut off": image((640, 480), "JPEG")[:-400],
    "a gif that is a header": image(form="GIF")[:13],
    "a webp that is a header": image(form="WEBP")[:16],
    "a png of 50,000 x 50,000": png_bomb(50_000, 50_000),
    "a png that says so": png(50_000, 50_000),
    "a png a bit too large": png_bomb(6001, 6000),
    "a jpeg that says too much": large_jpeg(),
    "a gif that says too much": patched(image(form="GIF"), 6, b"\xff\xff\xff\xff"),
    "a png of no pixels": png(0, 5),
    "a png with a wrong checksum": patched(image(), 29, b"\0\0\0\0"),
    "a png with a bomb of text": text_bomb(),
    "tiff": image(form="TIFF"),
    "bmp": image(form="BMP"),
    "ico": image(form="ICO"),
    "avif": b"\0\0\0 ftypavif" + bytes(100),
    "heic": b"\0\0\0 ftypheic" + bytes(100),
    "a pdf as an image": pdf(),
    "a sound as an image": wav(),
}
SOUNDS: dict[str, bytes] = {
    "junk": b"junk" * 100,
    "a wav that is cut off": wav()[:9000],
    "a wav without samples": wav(0),
    "a wav of two chunks of samples": patched(wav() + wav()[36:], 4, struct.pack("<I", 64_044)),
    "a wav of no rate": patched(wav(), 24, bytes(4)),
    "a wav of many channels": wav(10, channels=1000),
    "a wav of a day": patched(wav(), 40, b"\xff\xff\xff\x7f")[:44],
    "an endless mp3": MP3_FRAME * 20_000,
    "an mp3 that is a part of a header": b"ID3*",
    "an mp3 that is a header": b"ID3\4\0\0" + b"\x7f" * 8,
    "a flac that is a header": b"fLaC\0\0\0\x22" + bytes(34),
    "an ogg that is a header": b"OggS" + bytes(60),
    "an mp4 without a sound": b"\0\0\0\x18ftypisom" + bytes(12) + b"\0\0\0\x08moov",
    "a list of other files": b"#EXTM3U\nfile:///etc/passwd\n",
    "a concatenation of other files": b"ffconcat version 1.0\nfile /etc/passwd\n",
    "an image as a sound": image(),
}
DOCUMENTS: dict[str, bytes] = {
    "html": b"<!doctype html>",
    "a pdf that is a header": b"%PDF-1.7\n" + b"junk" * 50,
    "a pdf of nothing": b"%PDF-1.4\n%%EOF",
    "a pdf of no pages": pdf(0),
    "a pdf that is cut off": pdf()[:-200],
    "a locked pdf": locked_pdf(),
    "a pdf of too many pages": pdf(101),
    "a pdf behind too much": bytes(1025) + pdf(),
    "a docx": b"PK\3\4" + bytes(100),
}


def text_of_pdf(data: bytes) -> str:
    with pypdfium2.PdfDocument(data) as document:
        text: str = document[0].get_textpage().get_text_bounded()
    return text
