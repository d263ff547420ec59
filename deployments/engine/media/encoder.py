"""Makes vectors of images and sounds, which stand at the positions of a prompt's placeholders, and
keeps them.

The same file gives the same vectors: each is encoded alone.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.contract.requests import MediumFile
from deployments.engine.media.encoders import Inputs, MediaFamily, Module
from deployments.media.decoder_process import DecoderProcess, DecodingError, Job
from deployments.media.file_types import FileKind
from deployments.media.images import UnreadableError
from deployments.media.medium import Medium, WantedForm
from deployments.media.settings import MediaSettings

Floats = NDArray[np.float32]

TOWER_ATTENTION = "sdpa"
SOUND_INPUTS = "input_features"  # that no image has
LARGEST_SIDE = 4096  # pixels
STEPS_AHEAD = 2  # whose tokens may have their vectors
# The ingress has kept to the limits of its settings. Here only the decoder's memory bounds a file.
LIMITS = MediaSettings(max_pixels=1 << 28, max_audio_s=86_400.0, decode_timeout_s=60.0)


class MediaEncoder:
    """Owns what a model has besides its language model."""

    def __init__(
        self, base: PreTrainedModel, family: MediaFamily, processor: Any, rules: MediaRules
    ) -> None:
        """`base` is without its language model. `processor` is transformers', and `rules` say how
        many vectors it makes a medium come to."""
        self.rules = rules
        self._base: Module = base
        self._family = family
        self._processor = processor
        self._image_options = family.options(processor)
        self._sound_options = family.sound_options(processor)
        self.bidirectional = family.bidirectional(base.config)
        self._base.set_attn_implementation(TOWER_ATTENTION)
        self._idle: list[DecoderProcess] = []
        self.placeholder_ids = frozenset(
            rule.placeholder_id for rule in (rules.images, rules.audio) if rule is not None
        )

    def prepare(self, file: MediumFile) -> Sequence[Inputs]:
        """Decodes a file, on any thread, to parts that are encoded one by one. Raises
        UnreadableError."""
        if file.kind is MediaKind.IMAGE:
            return [self._read_image(file.data)]
        inputs = self._read_sound(file.data)
        if self._family.sound_window is None:
            return [inputs]
        window = self._family.sound_window(self._processor)
        return [{SOUND_INPUTS: part} for part in torch.split(inputs[SOUND_INPUTS], window, -1)]

    def _read_image(self, data: bytes) -> Inputs:
        seen = self._decoded(Job(kind=FileKind.IMAGE, wanted=WantedForm.PIXELS), data)
        return self._processed(Image.frombytes("RGB", (seen.width, seen.height), seen.data))

    def _processed(self, image: Image.Image) -> Inputs:
        inputs = self._processor.image_processor(
            images=[image], return_tensors="pt", **self._image_options
        )
        return _tensors(inputs)

    def _read_sound(self, data: bytes) -> Inputs:
        job = Job(kind=FileKind.AUDIO, wanted=WantedForm.SAMPLES, rate=self._sampling_rate)
        return self._features(np.frombuffer(self._decoded(job, data).data, dtype="<f4"))

    def _decoded(self, job: Job, data: bytes) -> Medium:
        """Decodes in a process of its own: where a file breaks it, that hurts its task alone."""
        try:
            process = self._idle.pop()
        except IndexError:  # all are at work
            process = DecoderProcess(LIMITS)
        try:
            [piece] = process.decode(job, data)
        except DecodingError as error:
            raise UnreadableError(str(error)) from error
        finally:
            self._idle.append(process)
        assert piece.medium is not None, "images and sounds are media"
        return piece.medium

    def _features(self, samples: Floats) -> Inputs:
        inputs = self._processor.feature_extractor(
            samples,
            sampling_rate=self._sampling_rate,
            return_tensors="pt",
            **self._sound_options,
        )
        return _tensors(inputs)

    @property
    def _sampling_rate(self) -> int:
        rate: int = self._processor.feature_extractor.sampling_rate
        return rate

    @torch.inference_mode()
    def encode(self, inputs: Inputs) -> Tensor:
        """[ids of the part, hidden], on the model's device. Raises whatever the model raises."""
        weight = next(self._base.parameters())
        moved = {
            name: tensor.to(weight.device, weight.dtype if tensor.is_floating_point() else None)
            for name, tensor in inputs.items()
        }
        is_sound = SOUND_INPUTS in inputs
        vectors = self._family.sound_vectors if is_sound else self._family.image_vectors
        assert vectors is not None, "its rules have no such media"
        return vectors(self._base, moved)

    def encode_largest(self) -> Tensor:
        """Encodes an image so large that processors shrink it to what their model takes at most.

        Encodes a sound if the model sees nothing: as long as what its tower hears at once.
        """
        if self.rules.images is not None:
            largest = Image.new("RGB", (LARGEST_SIDE, LARGEST_SIDE))
            return self.encode(self._processed(largest))
        n_samples: int = self._processor.feature_extractor.n_samples
        return self.encode(self._features(np.zeros(n_samples, dtype=np.float32)))

    def close(self) -> None:
        """Ends the decoders that have nothing to do."""
        while self._idle:
            self._idle.pop().close()

    @property
    def module(self) -> Module:
        """The weights of the encoder."""
        return self._base


class EncoderCache:
    """Vectors of media, by the digest of what they were made of. The least recently used ones go
    first when they are more than fit."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._vectors: OrderedDict[bytes, Tensor] = OrderedDict()

    def get(self, digest: bytes) -> Tensor | None:
        """[ids of the medium, hidden]"""
        if (found := self._vectors.get(digest)) is not None:
            self._vectors.move_to_end(digest)
        return found

    def put(self, digest: bytes, vectors: Tensor) -> None:
        """Adds the vectors of a medium that it does not hold.

        Vectors that are larger than all its room are left out.
        """
        if vectors.nbytes > self._max_bytes:
            return
        self._vectors[digest] = vectors
        self._n_bytes += vectors.nbytes
        while self._n_bytes > self._max_bytes:
            self._n_bytes -= self._vectors.popitem(last=False)[1].nbytes


def _tensors(inputs: Mapping[str, object]) -> Inputs:
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
