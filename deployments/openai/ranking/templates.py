"""The chat templates of rerankers: what stands before and behind a document for its query."""

from collections.abc import Mapping
from typing import NamedTuple

from deployments.contract.model_card import ModelCard
from deployments.text.tokens.tokenizer import TextTokenizer

DOCUMENT = "\ufdd0document\ufdd1"  # noncharacters of Unicode, which no template has of its own
PAIR_ROLES = "query", "document"
# Qwen3-Reranker's own words, which it was trained with.
JUDGE = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".'
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


class Frame(NamedTuple):
    """The rendered template around a document."""

    before: str
    after: str


def knows_pairs(card: ModelCard) -> bool:
    """Whether the template has roles for a query and its document."""
    template = card.chat_template or ""
    return all(f"'{role}'" in template or f'"{role}"' in template for role in PAIR_ROLES)


def frame_of(
    card: ModelCard,
    tokenizer: TextTokenizer,
    query: str,
    instruction: str | None,
    template_kwargs: Mapping[str, object],
) -> Frame:
    """Raises Refused where the template does not take it."""
    if knows_pairs(card):
        messages = [{"role": "query", "content": query}, {"role": "document", "content": DOCUMENT}]
        if instruction is not None:
            template_kwargs = {"instruction": instruction, **template_kwargs}
    else:
        text = f"<Instruct>: {instruction or INSTRUCTION}\n<Query>: {query}\n<Document>: {DOCUMENT}"
        messages = [{"role": "system", "content": JUDGE}, {"role": "user", "content": text}]
    rendered = tokenizer.render_texts(messages, {"enable_thinking": False, **template_kwargs})
    before, _, after = rendered.rpartition(DOCUMENT)
    return Frame(before, after)
