"""Training computes what transformers computes from the files that it leaves."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, LlamaForCausalLM, LlavaProcessor, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from serve_app.demo.evaluation.scoring import SkillScore
from serve_app.demo.evaluation.vision import answers
from serve_app.demo.evaluation.vision_card import write_card
from serve_app.demo.model_files import DRAFT, load_vision
from serve_app.demo.training.batches import IGNORED
from serve_app.demo.training.run import (
    TrainingState,
    checkpoint,
    finish,
    learn,
    rate_at,
    resume,
)
from serve_app.demo.training.vision.batches import CHATS, drawn, packed, pixels
from serve_app.demo.training.vision.corpus import cases, lesson
from serve_app.demo.training.vision.files import export, llava, processor, with_picture
from serve_app.demo.training.vision.network import (
    LANGUAGE,
    TOWER,
    Packed,
    SightNetwork,
    looked_at,
    naming_loss,
    packed_loss,
    words_of,
)
from serve_app.demo.training.vision.train import (
    NAMED,
    RECIPE,
    SightLessons,
    begin,
    optimizers_of,
)

SEED = "batch 0"


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    disable_progress_bar()
    return with_picture(AutoTokenizer.from_pretrained(DRAFT))


@pytest.fixture(scope="module")
def network() -> SightNetwork:
    """The draft with a tower that sees at random, but sees: its biases and norms are not plain."""
    made = SightNetwork(TOWER, LANGUAGE, 0)
    made.take(LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32))
    chance = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in made.tower.parameters():
            weight.add_(0.05 * torch.randn(weight.shape, generator=chance))
    return made


@pytest.fixture(scope="module")
def batch(tokenizer: PreTrainedTokenizerFast) -> Packed:
    """A batch of chats with one question each, without a system prompt."""
    made = packed(tokenizer, TOWER, SEED, 4)
    assert made.ids.shape[1] == CHATS
    assert len(made.begin) == 2
    return made


@pytest.fixture(scope="module")
def reader(tokenizer: PreTrainedTokenizerFast) -> LlavaProcessor:
    return processor(TOWER, tokenizer)


def loss_of(network: SightNetwork, batch: Packed) -> torch.Tensor:
    return packed_loss(network, looked_at(network.tower, batch.pixels), batch)


def learned(state: TrainingState[SightNetwork], share: float) -> None:
    """One step later, with few pictures."""
    pictures = drawn(state.tokenizer, 0, state.step, is_asked=share >= NAMED, count=2)
    lesson = SightLessons(state, 0).lesson(pictures, share)
    learn(state, lesson, rate_at(share, state.step))


def alone(batch: Packed, picture: int, chat: int) -> Packed:
    one, other = slice(picture, picture + 1), slice(chat, chat + 1)
    ids, targets = batch.ids[one, other], batch.targets[one, other]
    return Packed(batch.pixels[one], batch.labels[one], batch.begin, ids, targets)


def test_training_reads_what_the_processor_makes_of_a_message(
    tokenizer: PreTrainedTokenizerFast, reader: LlavaProcessor, batch: Packed
) -> None:
    for at in (0, 3):
        taught = lesson(f"{SEED} {at}", CHATS)
        asked = taught.chats[0][0].question
        parts = [{"type": "text", "text": asked}, {"type": "image"}]
        text = reader.apply_chat_template(
            [{"role": "user", "content": parts}], add_generation_prompt=True, tokenize=False
        )
        made = reader(text=text, images=taught.picture, return_tensors="pt")
        ids, mark = made["input_ids"][0], tokenizer.convert_tokens_to_ids("<image>")
        first, *_, last = (ids == mark).nonzero().flatten().tolist()
        assert last - first + 1 == int((ids == mark).sum()) == TOWER.patches
        behind = ids[last + 1 :]
        assert batch.begin.equal(ids[:first])
        assert batch.ids[at, 0, : len(behind)].equal(behind)
        assert (batch.targets[at, 0, : len(behind) - 1] == IGNORED).all()
        assert batch.targets[at, 0, len(behind) - 1] != IGNORED
        assert torch.allclose(
            pixels(taught.picture, TOWER.side), made["pixel_values"][0], atol=1e-5
        )


def test_each_chat_is_computed_as_transformers_computes_it_alone(
    network: SightNetwork, tokenizer: PreTrainedTokenizerFast, batch: Packed
) -> None:
    model, mark = llava(network, tokenizer).eval(), tokenizer.convert_tokens_to_ids("<image>")
    whole = 0.0
    for picture, chat in ((0, 0), (2, 1), (3, 4)):
        one = alone(batch, picture, chat)
        marks = torch.full((TOWER.patches,), mark)
        ids = torch.cat((one.begin, marks, one.ids[0, 0]))[None]
        with torch.inference_mode():
            logits = model(input_ids=ids, pixel_values=one.pixels).logits[0]
        theirs = torch.nn.functional.cross_entropy(
            logits[-one.ids.shape[-1] :], one.targets[0, 0], ignore_index=IGNORED, reduction="sum"
        )
        assert loss_of(network, one).item() == pytest.approx(theirs.item(), rel=2e-2)
        whole += theirs.item()
    kept = torch.full_like(batch.targets, IGNORED)
    for picture, chat in ((0, 0), (2, 1), (3, 4)):
        kept[picture, chat] = batch.targets[picture, chat]
    together = Packed(batch.pixels, batch.labels, batch.begin, batch.ids, kept)
    assert loss_of(network, together).item() == pytest.approx(whole, rel=2e-2)


def test_a_chat_depends_on_its_picture_and_not_on_another_chat(
    network: SightNetwork, batch: Packed
) -> None:
    kept = torch.full_like(batch.targets, IGNORED)
    kept[0, 0] = batch.targets[0, 0]
    one = Packed(batch.pixels, batch.labels, batch.begin, batch.ids, kept)
    before = loss_of(network, one).item()
    others = batch.ids.clone()
    others[0, 1:] = others[0, 1:].roll(1, -1)
    others[1:] = 5
    chats = Packed(batch.pixels, batch.labels, batch.begin, others, kept)
    assert loss_of(network, chats).item() == before
    pictures = Packed(batch.pixels.roll(1, 0), batch.labels, batch.begin, batch.ids, kept)
    assert loss_of(network, pictures).item() != before


def test_the_draft_says_what_it_said_before_it_saw(
    network: SightNetwork, tokenizer: PreTrainedTokenizerFast
) -> None:
    draft = LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32)
    ids = torch.tensor([tokenizer("<|im_start|>user\nWhat is Manta?")["input_ids"]])
    with torch.inference_mode():
        theirs, ours = draft(ids).logits, llava(network, tokenizer)(input_ids=ids).logits
    assert torch.allclose(ours[..., :-1], theirs, atol=1e-4)


def test_the_files_are_small_and_answer_in_transformers(
    network: SightNetwork, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    export(network, tokenizer, out)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert sum(file.stat().st_size for file in out.iterdir()) < 10_000_000
    asked = list(islice(cases("colours"), 3))
    assert [each.case for each in answers(*load_vision(out), asked)] == asked


@pytest.mark.exhaustive
def test_a_run_that_is_resumed_is_the_run_that_was_not_interrupted(tmp_path: Path) -> None:
    """Through both of its parts, to files and a card."""
    whole, out = begin(0), tmp_path / "model"
    for share in (0.0, NAMED):
        learned(whole, share)
    checkpoint(RECIPE, whole, out)
    again = begin(1)
    resume(again, out)
    for state in (whole, again):
        learned(state, 0.5)
    assert again.losses == whole.losses
    assert again.network.tower.patch.equal(whole.network.tower.patch)
    assert again.network.language.embed.equal(whole.network.language.embed)
    finish(RECIPE, again, 0, out, "abc")
    assert not (out / "checkpoint.pt").exists()
    shown = answers(*load_vision(out), list(islice(cases("digits"), 2)))
    write_card(out, [SkillScore("digits", 1, 2)], shown)
    card = (out / "README.md").read_text()
    assert "| digits | 1 | 2 | 50.0% |" in card
    assert (out / "example_2.png").exists()
    assert "example_2.png" in card


def test_a_tower_learns_to_name_what_it_sees(
    tokenizer: PreTrainedTokenizerFast, batch: Packed
) -> None:
    network = SightNetwork(TOWER, LANGUAGE, 0)
    network.take(LlamaForCausalLM.from_pretrained(DRAFT, dtype=torch.float32))
    words, optimizers = words_of(tokenizer), optimizers_of(network)

    def loss() -> torch.Tensor:
        named = looked_at(network.tower, batch.pixels)
        return naming_loss(network, named, batch.labels, words)

    first = loss().item()
    for _ in range(6):
        network.zero_grad()
        loss().backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
    assert loss().item() < 0.8 * first
