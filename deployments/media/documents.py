"""PDF documents as pdfium reads them: the text of each page, and an image of it."""

import pypdfium2

from deployments.media.images import UnreadableError, as_png, described
from deployments.media.medium import DecodedPiece

PAGE_SIDE = 1568  # pixels of the longer side of a page's image
MAX_SCALE = 4.0  # of a page's 72 dots an inch
MAX_CHARACTERS = 8 << 20


def read_document(data: bytes, max_pages: int, *, with_images: bool) -> list[DecodedPiece]:
    """Raises UnreadableError."""
    try:
        with pypdfium2.PdfDocument(data) as document:
            n_pages = len(document)
            if n_pages > max_pages:
                raise UnreadableError(f"has {n_pages} pages, and at most {max_pages} are allowed")
            pages: list[DecodedPiece] = []
            n_characters = 0
            for index in range(n_pages):
                page = _page(document[index], with_images=with_images)
                n_characters += len(page.text)
                if n_characters > MAX_CHARACTERS:
                    raise UnreadableError(f"has more than {MAX_CHARACTERS:,} characters")
                pages.append(page)
            return pages
    except UnreadableError:
        raise
    except Exception as error:  # pdfium's own errors, and lying sizes
        raise UnreadableError(f"can't be read: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    """pdfium has no error for a document of no pages, and says that all is well."""
    return "it has no pages" if "PDFium: Success" in str(error) else str(error)


def _page(page: pypdfium2.PdfPage, *, with_images: bool) -> DecodedPiece:
    text = page.get_textpage().get_text_bounded().replace("\r\n", "\n").strip()
    if not with_images:
        return DecodedPiece(text)
    scale = min(PAGE_SIDE / max(*page.get_size(), 1.0), MAX_SCALE)
    image = page.render(scale=scale).to_pil().convert("RGB")
    return DecodedPiece(text, described(image, as_png(image)))
