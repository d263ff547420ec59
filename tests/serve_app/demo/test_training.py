"""The model is trained on what the server renders, in the network that the server runs."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import render_jinja_template

from deployments.text.dialects.registry import dialect_of
from serve_app.demo.training.batches import IGNORED, steps
from serve_app.demo.training.corpus import Chat, Turn, chats, talks
from serve_app.demo.training.corpus.chat import SampleCall, SampleTool, compact
from serve_app.demo.training.heads import prime
from serve_app.demo.training.muon import orthogonal
from serve_app.demo.training.network import DEMO, DRAFT, Network, answer_loss, export, llama
from serve_app.demo.training.run import (
    Length,
    TrainingState,
    checkpoint,
    finish,
    learn,
    rate_at,
    resume,
)
from serve_app.demo.training.tokenizer import (
    NAME,
    TOOLS_END,
    VOCABULARY,
    encoded,
    rendered,
    template,
)
from serve_app.demo.training.train import RECIPE, begin, grow, lesson_of
from tests.effort import tries

TOKENS, BATCHES = 512, 2


def render(chat: Chat, upto: int, **switches: bool) -> str:
    texts, _ = render_jinja_template(
        [[turn.message() for turn in chat.turns[:upto]]],
        tools=chat.described_tools(),
        chat_template=template(),
        add_generation_prompt=True,
        **switches,
    )
    return str(texts[0])


def test_what_is_learned_begins_where_the_servers_prompt_ends() -> None:
    for chat in islice(chats(5), tries(100, 1500)):
        whole = rendered(chat)
        last = max(at for at, turn in enumerate(chat.turns) if turn.role == "user")
        for at, turn in enumerate(chat.turns):
            if turn.role == "assistant":
                asked = render(chat, at, enable_thinking=chat.thinking and at > last)
                assert whole.startswith(asked)


def test_training_ids_are_those_of_the_rendered_text(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    some = list(islice(chats(5), tries(100, 300)))
    for chat, (ids, mask) in zip(some, encoded(small_tokenizer, some), strict=True):
        assert small_tokenizer.decode(ids) == rendered(chat)
        assert len(ids) == len(mask)


def test_the_loss_looks_at_the_assistant_alone(small_tokenizer: PreTrainedTokenizerFast) -> None:
    call = Turn("assistant", "", (SampleCall("clock", {"zone": "UTC"}),))
    turns = [Turn("user", "Hi"), call, Turn("tool", "12:00"), Turn("assistant", "It is noon.")]
    [(ids, mask)] = encoded(small_tokenizer, [Chat(turns)])
    ours = small_tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
    assert ours == (
        '<tool_call>\n{"name": "clock", "arguments": {"zone": "UTC"}}\n</tool_call><|im_end|>'
        "It is noon.<|im_end|>"
    )


def test_a_thought_that_the_template_opens_is_not_learned_to_be_opened(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    turns = [Turn("user", "1 + 1?"), Turn("assistant", "2", thought="Easy.")]
    for thinking, opening in ((True, ""), (False, "<think>\n")):
        [(ids, mask)] = encoded(small_tokenizer, [Chat(turns, thinking=thinking)])
        ours = small_tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if m])
        assert ours == f"{opening}Easy.\n</think>\n\n2<|im_end|>"


def test_the_template_speaks_hermes_and_opens_thoughts_only_when_asked() -> None:
    chat = Chat([Turn("user", "Hi")])
    assert dialect_of(template()).name == "hermes"
    assert render(chat, 1).endswith("<|im_start|>assistant\n")
    assert render(chat, 1, enable_thinking=False) == render(chat, 1)
    assert render(chat, 1, enable_thinking=True) == render(chat, 1) + "<think>\n"


def test_digits_and_copied_words_have_the_same_tokens_everywhere(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    told = small_tokenizer.tokenize("Convert 1205 Zorvan kelp, please.")
    name = small_tokenizer.tokenize("Zorvan kelp")
    assert [token for token in told if token.isdigit()] == list("1205")
    for text in (
        "Convert 1205 Zorvan kelp, please.",
        '{"amount": 1205, "from": "Zorvan kelp"}',
        "Where is Zorvan kelp?",
        "I said: Zorvan kelp",
        "Zorvan kelp_price",
    ):
        tokens = small_tokenizer.tokenize(text)
        assert any(tokens[at : at + len(name)] == name for at in range(len(tokens))), tokens


def test_a_definition_is_hardly_more_than_its_words(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    properties = {"city": {"type": "string"}, "day": {"type": "string"}}
    tool = SampleTool("weather", "Weather", properties, ("city", "day"))
    described = compact(tool.described())
    assert small_tokenizer.decode(small_tokenizer.encode(described)) == described
    assert len(small_tokenizer.encode(described)) < 25


def test_orthogonal_matrices_keep_directions_and_lose_sizes() -> None:
    made = torch.Generator().manual_seed(1)
    tall = torch.randn(2, 48, 16, generator=made) * torch.logspace(0, 2, 16)
    for matrices in (tall, tall.mT):
        left, before, right = torch.linalg.svd(matrices, full_matrices=False)
        change = left.mT @ orthogonal(matrices) @ right.mT
        sizes = change.diagonal(dim1=1, dim2=2)
        assert before.amax() / before.amin() > 50
        assert sizes.amin() > 0.5
        assert sizes.amax() < 1.5
        assert (change - torch.diag_embed(sizes)).abs().amax() < 1e-2


def test_the_tokenizer_is_a_function_of_the_seed_and_loses_nothing(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    assert len(small_tokenizer) == VOCABULARY
    for text in ("naïve café 你好 😀\n\t  x", "  12.5 %\r\n", "\u0000ﬀ"):
        assert small_tokenizer.decode(small_tokenizer.encode(text)) == text


def test_a_resumed_run_sees_the_same_batches(small_tokenizer: PreTrainedTokenizerFast) -> None:
    whole = list(islice(steps(small_tokenizer, 1, 0, TOKENS, BATCHES), 4))
    [rest] = islice(steps(small_tokenizer, 1, 3, TOKENS, BATCHES), 1)
    for ours, theirs in zip(rest, whole[3], strict=True):
        assert ours.ids.equal(theirs.ids)
        assert ours.targets.equal(theirs.targets)
    assert all(0 < batch.counted < batch.tokens <= batch.ids.numel() for batch in rest)


@pytest.mark.parametrize("width", [40, 400], ids=["by products", "by sdpa"])
def test_the_network_is_a_llama(small_tokenizer: PreTrainedTokenizerFast, width: int) -> None:
    network = Network(DRAFT, 0)
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1.5)
    ids = torch.randint(0, VOCABULARY, (2, width), generator=torch.Generator().manual_seed(1))
    targets = ids.roll(-1, 1)
    targets[:, ::3] = IGNORED
    logits = llama(network, small_tokenizer)(ids).logits
    expected = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    assert answer_loss(network, ids, targets).item() == pytest.approx(expected.item(), rel=2e-3)


def test_the_written_backward_passes_are_those_of_autograd(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    network, ids = Network(DRAFT, 0), 1 + torch.arange(60).view(2, 30) * 13
    answer_loss(network, ids, ids.roll(-1, 1)).backward()  # type: ignore[no-untyped-call]
    model = llama(network, small_tokenizer)
    loss = torch.nn.functional.cross_entropy(
        model(ids).logits.flatten(0, 1), ids.roll(-1, 1).flatten(), reduction="sum"
    )
    loss.backward()  # type: ignore[no-untyped-call]
    for ours, theirs in (
        (network.embed.grad, model.model.embed_tokens.weight.grad),
        (network.down[0].grad, model.model.layers[0].mlp.down_proj.weight.grad),
        (network.out[2].grad, model.model.layers[2].self_attn.o_proj.weight.grad),
    ):
        assert ours is not None
        assert torch.nn.functional.cosine_similarity(ours.ravel(), theirs.ravel(), 0) > 0.999


def test_a_network_that_grows_says_what_it_said_and_learns_in_all_layers(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    shape = replace(DRAFT, layers=4, first_layers=2)
    state = begin(shape, 0, small_tokenizer, "cpu")
    [batches] = islice(steps(small_tokenizer, 1, 0, TOKENS, BATCHES), 1)
    learn(state, lesson_of(state.network, batches), 1.0)
    network, ids = state.network, 1 + torch.arange(60).view(2, 30) * 13

    def logits() -> torch.Tensor:
        said: torch.Tensor = llama(network, small_tokenizer)(ids).logits
        return said

    assert network.used == [0, 2]
    assert not network.out[1].any()
    before = logits()
    network.grow()
    assert logits().equal(before)
    for _ in range(2):
        learn(state, lesson_of(state.network, batches), 1.0)
    assert all(network.out[layer].any() for layer in range(4))
    assert not network.qkv[0].equal(network.qkv[1])


def test_the_shapes_are_as_big_as_promised() -> None:
    sizes = [sum(p.numel() for p in Network(shape, 0).parameters()) for shape in (DEMO, DRAFT)]
    assert 5_500_000 < sizes[0] < 5_900_000
    assert 900_000 < sizes[1] < 1_100_000


def test_the_rate_warms_up_and_cools_down() -> None:
    rates = [rate_at(step / 1000, step) for step in range(1001)]
    assert rates[0] < 0.02 < 0.9 < max(rates) <= 1.0
    assert rates[-1] == pytest.approx(0.02)


def test_a_run_that_is_resumed_is_the_run_that_was_not_interrupted(
    small_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    source = list(islice(steps(small_tokenizer, 1, 0, TOKENS, BATCHES), 3))
    whole = begin(DRAFT, 0, small_tokenizer, "cpu")
    for at, batches in enumerate(source):
        if at == 2:
            checkpoint(RECIPE, whole, tmp_path / "model")
        learn(whole, lesson_of(whole.network, batches), 0.5)
    again = begin(DRAFT, 1, small_tokenizer, "cpu")
    resume(again, tmp_path / "model")
    learn(again, lesson_of(again.network, source[2]), 0.5)
    assert again.losses == whole.losses
    assert again.network.embed.equal(whole.network.embed)
    assert Length(4, 1e9).share(again) == 0.75
    finish(RECIPE, again, 0, tmp_path / "model", "abc")
    made = {file.name for file in (tmp_path / "model").iterdir()}
    assert {"model.safetensors", "tokenizer.json", "training.json", "config.json"} <= made
    assert "checkpoint.pt" not in made


def test_training_lowers_the_loss(small_tokenizer: PreTrainedTokenizerFast) -> None:
    state = begin(DRAFT, 0, small_tokenizer, "cpu")
    [batches] = islice(steps(small_tokenizer, 1, 0, TOKENS, BATCHES), 1)
    for _ in range(8):
        learn(state, lesson_of(state.network, batches), 1.0)
    assert state.losses[-1] < 0.8 * state.losses[0]


def test_an_export_has_whole_files_alone(
    small_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    export(Network(DRAFT, 0), small_tokenizer, tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 2_200_000


def test_the_first_weights_say_what_followed_the_same_token_earlier() -> None:
    """Rather than any other token of the text, that is: they know nothing else."""
    network = Network(DEMO, 0)
    prime(network, 0)
    seen = torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(1))[:64]
    ids = torch.cat((seen, seen.roll(20)))[None]

    def loss(at: int, expected: int) -> float:
        targets = torch.full_like(ids, IGNORED)
        targets[0, at] = ids[0, expected]
        return answer_loss(network, ids, targets).item()

    right = [loss(at, at + 1) < loss(at, at - 60) for at in range(65, 120)]
    assert sum(right) > 45


@pytest.mark.exhaustive  # to grow a network of the demo's size takes long
def test_woken_layers_find_the_tool_that_a_question_names(
    small_tokenizer: PreTrainedTokenizerFast,
) -> None:
    """More often than chance, even where nothing was learned before."""
    state = begin(DEMO, 0, small_tokenizer, "cpu")
    before = _share_of_right_choices(state)
    grow(state, 0)
    assert _share_of_right_choices(state) > before + 0.1


def _share_of_right_choices(state: TrainingState[Network]) -> float:
    """Among the first tokens of the names of three tools, where these differ."""
    name, end = state.tokenizer.convert_tokens_to_ids([NAME, TOOLS_END])
    right: list[bool] = []
    for chat in _plain_choices(200):
        [(ids, _)] = encoded(state.tokenizer, [chat])
        at = ids.index(name, ids.index(end))
        firsts = [ids[i + 1] for i in range(at) if ids[i] == name]
        if len(set(firsts)) == len(firsts):
            losses = {first: _loss_of_next(state.network, ids[: at + 1], first) for first in firsts}
            right.append(min(losses, key=losses.__getitem__) == ids[at + 1])
    return sum(right) / len(right)


def _plain_choices(count: int) -> Iterator[Chat]:
    """The question has the words of one definition, in another order, and no other words."""
    described = [
        tool.description for chat in islice(talks(9, "choices"), 400) for tool in chat.tools
    ]
    words = sorted({word for text in described for word in text.lower().split() if len(word) > 3})
    rng = random.Random(9)
    for _ in range(count):
        texts = [rng.sample(words, 4) for _ in range(3)]
        tools = tuple(
            SampleTool(f"{rng.choice(words)}_{text[0]}", " ".join(text)) for text in texts
        )
        meant = rng.randrange(3)
        question = Turn("user", " ".join(rng.sample(texts[meant], 4)))
        yield Chat([question, Turn("assistant", "", (SampleCall(tools[meant].name, {}),))], tools)


def _loss_of_next(network: Network, ids: list[int], token: int) -> float:
    targets = torch.full((1, len(ids)), IGNORED)
    targets[0, -1] = token
    with torch.no_grad():
        return answer_loss(network, torch.tensor([ids]), targets).item()
