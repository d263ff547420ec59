"""Images as Pillow decodes them, in the process of the decoder alone."""

from dataclasses import replace
from hashlib import blake2b
from io import BytesIO

from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from deployments.contract.media_rules import MediaKind
from deployments.media.medium import Medium
from kv.content import DIGEST_BYTES

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
LOW_DETAIL_SIDE = 512  # as OpenAI has it
Image.MAX_IMAGE_PIXELS = None  # the header's size is checked here, before anything is decoded
ImageFile.LOAD_TRUNCATED_IMAGES = False


class UnreadableError(ValueError):
    """The file can't be decoded; the message says why."""


def open_image(data: bytes, max_pixels: int | None = None) -> Image.Image:
    """Decodes an image to RGB, turned as its EXIF data say. Raises UnreadableError."""
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as opened:
            _check_size(opened, max_pixels)
            opened.load()
            return _in_rgb(ImageOps.exif_transpose(opened))
    except UnreadableError:
        raise
    except Exception as error:  # decoders raise what they like
        raise UnreadableError(f"can't be decoded: {_reason(error)}") from error


def _in_rgb(image: Image.Image) -> Image.Image:
    """Puts what is transparent on white, as on a page.

    Samples of 16 bits are scaled, because Pillow would cut them off at 255.
    """
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        ground = Image.new("RGB", seen.size, "white")
        ground.paste(seen, mask=seen)
        return ground
    if image.mode.startswith("I"):
        return image.convert("I").point(lambda value: value / 256).convert("L").convert("RGB")
    return image.convert("RGB")


def _check_size(opened: Image.Image, max_pixels: int | None) -> None:
    width, height = opened.size
    if max_pixels is not None and width * height > max_pixels:
        raise UnreadableError(
            f"has {width} x {height} pixels, and at most {max_pixels:,} pixels are allowed"
        )


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "only its first bytes are those of an image"
    return str(error) or type(error).__name__


def read_image(data: bytes, max_pixels: int, *, is_low_detail: bool) -> Medium:
    """Raises UnreadableError."""
    image = open_image(data, max_pixels)
    if is_low_detail and max(image.size) > LOW_DETAIL_SIDE:
        image.thumbnail((LOW_DETAIL_SIDE, LOW_DETAIL_SIDE))
        data = as_png(image)
    return described(image, data)


def read_pixels(data: bytes, max_pixels: int) -> Medium:
    """Raises UnreadableError."""
    image = open_image(data, max_pixels)
    return replace(described(image, b""), data=image.tobytes())


def described(image: Image.Image, data: bytes) -> Medium:
    width, height = image.size
    hashed = blake2b(b"image %d %d " % image.size, digest_size=DIGEST_BYTES)
    hashed.update(image.tobytes())
    return Medium(
        kind=MediaKind.IMAGE, data=data, digest=hashed.digest(), width=width, height=height
    )


def as_png(image: Image.Image) -> bytes:
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)
    return file.getvalue()
