"""The plan and sampling parameters of a request. Unset fields take the model's defaults."""

import secrets
from collections.abc import Sequence
from dataclasses import replace

from deployments.ingress.generation.plan import Plan, check_ids
from deployments.openai.defaults import given
from deployments.openai.fields.common import CommonFields
from deployments.openai.fields.llamacpp_fields import LlamaCppFields
from deployments.openai.native_sampling import with_llamacpp_fields
from deployments.text.chat.prompt import Prompt
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard, SamplingParams, refused

ANY_SEED = (None, -1)  # no seed: vLLM and llama-server write -1


def plan(
    fields: LlamaCppFields,
    prompts: Sequence[Prompt],
    card: ModelCard,
    tokenizer: TextTokenizer,
    response_id: str,
    logprobs: int | None,
    prompt_param: str,
) -> Plan:
    return Plan(
        card=card,
        tokenizer=tokenizer,
        response_id=response_id,
        prompts=prompts,
        sampling=sampling_params(fields, card, tokenizer, logprobs),
        prompt_param=prompt_param,
        choices=fields.n or 1,
        max_tokens=fields.token_limit,
        min_tokens=fields.min_tokens or 0,
        stops=fields.stops,
        include_stop=bool(fields.include_stop_str_in_output),
        stop_token_ids=tuple(fields.stop_token_ids or ()),
        ignore_eos=bool(fields.ignore_eos),
        skip_special_tokens=fields.skip_special_tokens is not False,
        cache_salt=cache_salt(fields),
        priority=fields.priority or 0,
    )


def sampling_params(
    fields: LlamaCppFields, card: ModelCard, tokenizer: TextTokenizer, logprobs: int | None
) -> SamplingParams:
    drawing = with_llamacpp_fields(common_sampling(fields, card, logprobs), fields, card, tokenizer)
    if not fields.bad_words and fields.logit_bias is None:
        return drawing
    return replace(
        drawing,
        logit_bias=given(biases(fields.logit_bias, card), drawing.logit_bias),
        bad_words=bad_words(fields.bad_words or (), tokenizer),
    )


def cache_salt(fields: LlamaCppFields) -> str:
    """A random salt keeps a request from using the prefix cache and from being found in it."""
    return secrets.token_hex(16) if fields.cache_prompt is False else fields.cache_salt or ""


def common_sampling(fields: CommonFields, card: ModelCard, logprobs: int | None) -> SamplingParams:
    default = card.sampling
    top_k = given(fields.top_k, default.top_k)
    return replace(
        default,
        temperature=given(fields.temperature, default.temperature),
        top_k=top_k if 0 < top_k < card.vocab_size else 0,
        top_p=given(fields.top_p, default.top_p),
        min_p=given(fields.min_p, default.min_p),
        repetition_penalty=given(fields.repetition_penalty, default.repetition_penalty),
        presence_penalty=given(fields.presence_penalty, default.presence_penalty),
        frequency_penalty=given(fields.frequency_penalty, default.frequency_penalty),
        seed=secrets.randbits(63) if fields.seed in ANY_SEED else fields.seed,
        logprobs=logprobs,
    )


def biases(
    logit_bias: dict[str, float] | None, card: ModelCard
) -> tuple[tuple[int, float], ...] | None:
    if logit_bias is None:
        return None
    for name in logit_bias:
        if not (name.isascii() and name.isdecimal() and len(name) < 10):
            raise refused(f"`logit_bias`: the key {name[:20]!r} is not a token id", "logit_bias")
    found = {int(name): bias for name, bias in logit_bias.items()}
    check_ids(tuple(found), card, "logit_bias")
    return tuple(found.items())


def bad_words(words: Sequence[str], tokenizer: TextTokenizer) -> tuple[tuple[int, ...], ...]:
    """The tokens of each word, at the start of a text and after a space."""
    texts = (text for word in words for text in (word, f" {word.lstrip()}"))
    ids = (tuple(tokenizer.encode(text, add_special_tokens=False)) for text in texts)
    return tuple(dict.fromkeys(filter(None, ids)))
