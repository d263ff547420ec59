"""The need of speech: the sound that a task transcribes is encoded before the task's first row.

A sound is encoded once for each task that runs, and never again while any of them, or the cache of
the latest sounds, has its keys and values.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from deployments.contract.requests import GenerationRequest
from deployments.engine.forward.cross_attention import (
    FRAMES_PER_STATE,
    SAMPLE_BYTES,
    CrossKeyValues,
    EncoderStates,
    alignment_heads,
    encode,
    extractor_of,
)
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.needs.need import Need
from deployments.engine.tasks.batch import Ahead, Batch
from deployments.engine.tasks.task import Task


@dataclass(slots=True, eq=False)
class _Sound:
    """The sound of one task. `features` [bands, frames] are for the encoder. `key_values` are of
    what it has computed, while the task runs; tasks with the same sound share them.
    """

    digest: bytes  # of its samples and of the salt of who sent it
    samples: bytes = field(repr=False)
    features: Tensor | None = None
    key_values: CrossKeyValues | None = None


class SpeechNeed(Need):
    def __init__(self, model: PreTrainedModel, encoder: nn.Module, max_kept: int) -> None:
        """model: the decoder. max_kept: sounds that are remembered, whether or not a task needs
        them."""
        self._model, self._encoder, self._max_kept = model, encoder, max_kept
        self._heads = alignment_heads(model)
        self._extractor = extractor_of(model.config)
        self._kept: OrderedDict[bytes, CrossKeyValues] = OrderedDict()

    def prepare(self, task: Task) -> Callable[[], None]:
        def read_sound() -> None:
            task.parts[SpeechNeed] = self.sound_of(task.request)

        return read_sound

    def sound_of(self, request: GenerationRequest) -> _Sound:
        """The sound of a valid request, with its features if they are needed. From any thread."""
        # Who has other salt finds nothing of it, as in pages.
        digest = request.content.root() + request.content.media[0].digest
        samples = request.media[0].data
        features = None if digest in self._kept else self._features(samples)
        return _Sound(digest, samples, features)

    def choose(self, tasks: Sequence[Task], ahead: Ahead) -> Sequence[Task]:
        """Leaves out tasks whose sounds are not encoded yet, but for the first of these: encoding
        takes as long as a large chunk of a prompt does."""
        is_new = {task: self._sound(task).key_values is None for task in tasks}
        later = {*[task for task in tasks if is_new[task]][1:]}
        return [task for task in tasks if task not in later] if later else tasks

    def inputs(self, batch: Batch, step: StepInputs) -> StepInputs:
        """Encodes what is not encoded yet. The engine tries a model without a sound."""
        if not all(SpeechNeed in task.parts for task in batch.tasks):
            return step
        key_values = [self._key_values(self._sound(task)) for task in batch.tasks]
        aligned = {
            row: self._n_states(self._sound(task))
            for row, task in enumerate(batch.tasks)
            if task.pooled is not None and task.pooled.aligns
        }
        states = EncoderStates(key_values, batch.new_len, aligned, self._heads)
        return replace(step, encoder_states=states)

    def leave(self, task: Task, *, is_preempted: bool) -> None:
        self._sound(task).key_values = None

    def close(self) -> None:
        self._kept.clear()

    def _sound(self, task: Task) -> _Sound:
        sound: _Sound = task.parts[SpeechNeed]
        return sound

    def _n_states(self, sound: _Sound) -> int:
        hop: int = self._extractor.hop_length
        n_frames = -(-len(sound.samples) // SAMPLE_BYTES // hop)
        return max(1, n_frames // FRAMES_PER_STATE)

    def _key_values(self, sound: _Sound) -> CrossKeyValues:
        if sound.key_values is None:
            sound.key_values = self._kept.get(sound.digest) or self._encode(sound)
            sound.features = None
            self._kept[sound.digest] = sound.key_values
            self._kept.move_to_end(sound.digest)
            while len(self._kept) > self._max_kept:
                self._kept.popitem(last=False)
        return sound.key_values

    def _encode(self, sound: _Sound) -> CrossKeyValues:
        features = sound.features
        if features is None:  # it was preempted, or was kept when it came
            features = self._features(sound.samples)
        return encode(self._model, self._encoder, features)

    def _features(self, data: bytes) -> Tensor:
        """[bands, frames]"""
        samples = np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768
        rate = self._extractor.sampling_rate
        made = self._extractor(samples, sampling_rate=rate, return_tensors="pt")
        features: Tensor = made["input_features"][0]
        return features
