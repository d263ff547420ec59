"""Loads models that answer with vectors, scores or classes, by what their files are made for.

A model whose tokens attend to those before them alone becomes a decoder with another head in the
place of the vocabulary's: all that holds for decoders holds for it. The others are encoders.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultimodalLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from deployments.contract.outputs import Activation, AnswerKinds, ModelTask, Pooling
from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.encoder import alone
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.sentence_files import SentenceFiles
from deployments.engine.media.encoders import takes_media
from deployments.engine.outputs.classification import find_label_head
from deployments.engine.outputs.model_outputs import ModelOutputs
from kv.arrays import IntArray

N_TRIED = 6  # tokens
# Ends of the names of models whose hidden states are what they are for.
BARE = ("Model", "ForMaskedLM", "ForPreTraining")
WITH_HEAD = "LMHeadModel"  # one of these that has the vocabulary's head, as GPT-2
# Ends of the names of models whose heads are not served, and what these do.
OTHER_HEADS = {
    "ForTokenClassification": "labels each token of a text (as NER does)",
    "ForQuestionAnswering": "finds the answer to a question in a text",
    "ForMultipleChoice": "chooses among texts",
    "ForNextSentencePrediction": "tells whether a text follows another one",
    "RewardModel": "rewards answers with a head of its own",
    "ForRewardModeling": "rewards answers with a head of its own",
}
LABEL_TASKS = frozenset({ModelTask.SCORE, ModelTask.CLASSIFY})


def task_of(config: PretrainedConfig, files: SentenceFiles | None) -> ModelTask:
    """Returns what a model is made for, by its files."""
    name = (getattr(config, "architectures", None) or [""])[0]
    if name.endswith("ForSequenceClassification"):
        return ModelTask.SCORE if config.num_labels == 1 else ModelTask.CLASSIFY
    if files is not None and files.score_token_ids:
        return ModelTask.SCORE
    is_nameless = not name and type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING
    is_masked = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    is_decoder = not is_masked or getattr(config, "is_decoder", False)
    is_bare = name.endswith(BARE) and not (name.endswith(WITH_HEAD) and is_decoder)
    is_bare = (is_bare or (is_nameless and is_masked)) and not name.endswith(tuple(OTHER_HEADS))
    return ModelTask.EMBED if files is not None or is_bare else ModelTask.GENERATE


def auto_class(config: PretrainedConfig, task: ModelTask) -> Any:
    """The one that loads a model for its task.

    Raises UnsupportedModelError where transformers has none.
    """
    name = (getattr(config, "architectures", None) or [""])[0]
    if task is not ModelTask.EMBED:
        _check_head(name)
    has_labels = name.endswith("ForSequenceClassification")
    if name == "WhisperForConditionalGeneration":
        return AutoModelForSpeechSeq2Seq
    if task is ModelTask.GENERATE or (task is ModelTask.SCORE and not has_labels):
        if takes_media(config):
            return AutoModelForMultimodalLM
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise UnsupportedModelError(f"{config.model_type} is no causal language model of text")
        return AutoModelForCausalLM
    is_text = config.get_text_config() is config
    if task in LABEL_TASKS:
        known, found = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoModelForSequenceClassification
    else:
        known, found = MODEL_MAPPING, AutoModel
    if type(config) not in known or not is_text:
        raise UnsupportedModelError(f"{config.model_type} is no model of text to {task} with")
    return found


def _check_head(name: str) -> None:
    """Raises UnsupportedModelError for an architecture with a head that is not served."""
    for end, what in OTHER_HEADS.items():
        if name.endswith(end):
            raise UnsupportedModelError(
                f"{name} {what}, which is not served: with task embed its vectors are"
            )


def answer_as(
    loaded: LoadedModel,
    task: ModelTask,
    files: SentenceFiles | None = None,
    pooling: Pooling | None = None,
) -> LoadedModel:
    """The model with its outputs; in the place of a decoder without a vocabulary's head, one
    that has another head there. `pooling` is for one whose files do not say it, or otherwise.

    Raises UnsupportedModelError for one that can't be served so.
    """
    model, files = loaded.model, files or SentenceFiles()
    kinds = _kinds(model, task, files)
    own = pooling or kinds.pooling
    dense = files.dense if own is kinds.pooling else None
    size = kinds.embedding_size if dense is None else _size(dense)
    kinds = replace(kinds, pooling=own, embedding_size=size)
    outputs = ModelOutputs(kinds=kinds, dense=dense)
    is_decoder = has_vocabulary(model)
    if not is_decoder and _is_causal(model):
        model = _as_decoder(model, kinds)
        own = own or (Pooling.LAST if not kinds.labels else None)
        outputs = replace(outputs, kinds=replace(kinds, pooling=own))
    elif not is_decoder:
        outputs = _of_encoder(model, outputs)
    if dense is not None:
        dense.to(model.device)
    return replace(loaded, model=model, outputs=outputs)


def has_vocabulary(model: PreTrainedModel) -> bool:
    """Whether it is one of transformers' causal language models, with the vocabulary's head."""
    return _is_one_of(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, model)


def _is_one_of(names: Mapping[str, str], model: PreTrainedModel) -> bool:
    """Tells by the name of its class whether a model is one of these: a mapping to classes would
    import the modules of all models, for seconds."""
    return type(model).__name__ in names.values()


def _size(dense: nn.Sequential) -> int:
    """Returns the size of the vectors that come out."""
    return [layer.out_features for layer in dense if isinstance(layer, nn.Linear)][-1]


def _kinds(model: PreTrainedModel, task: ModelTask, files: SentenceFiles) -> AnswerKinds:
    config = model.config.get_text_config(decoder=True)
    has_labels = task in LABEL_TASKS and _is_one_of(
        MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES, model
    )
    return AnswerKinds(
        task=task,
        can_generate=task is ModelTask.GENERATE or (task is ModelTask.SCORE and not has_labels),
        can_embed=True,
        pooling=files.pooling,
        embedding_size=getattr(config, "hidden_size", 0),
        normalizes=files.normalizes,
        takes_pairs=getattr(config, "type_vocab_size", 0) > 1,
        prompts=files.prompts,
        default_prompt=files.default_prompt,
        labels=_labels(model.config) if has_labels else (),
        activation=_activation(model.config) if has_labels else Activation.NONE,
        score_token_ids=files.score_token_ids,
        max_input_tokens=files.max_input_tokens,
    )


def _labels(config: PretrainedConfig) -> tuple[str, ...]:
    names: dict[int, str] = getattr(config, "id2label", None) or {}
    return tuple(str(names.get(n, f"LABEL_{n}")) for n in range(config.num_labels))


def _activation(config: PretrainedConfig) -> Activation:
    """Returns the activation that its files name, or the one that cross-encoders have with one
    label and with several."""
    nested: dict[str, str] = getattr(config, "sentence_transformers", None) or {}
    named = nested.get("activation_fn") or getattr(
        config, "sbert_ce_default_activation_function", ""
    )
    match str(named or "").rpartition(".")[2]:
        case "Identity":
            return Activation.NONE
        case "Sigmoid":
            return Activation.SIGMOID
        case "Softmax":
            return Activation.SOFTMAX
        case "":
            pass
        case unknown:
            raise UnsupportedModelError(f"its scores are made by {unknown}, which is not known")
    if config.num_labels == 1 or config.problem_type == "multi_label_classification":
        return Activation.SIGMOID
    return Activation.NONE if config.problem_type == "regression" else Activation.SOFTMAX


@torch.inference_mode()
def _is_causal(model: PreTrainedModel) -> bool:
    """Whether what follows a token changes nothing of its hidden states."""
    with unsupported_on_error(f"transformers can't run {model.config.model_type}"):
        model.set_attn_implementation("eager")
        row = _row(model)
        other = np.concatenate([row[:-1], row[:1]])
        first, second = (
            alone(model, tokens, 0, takes_types=False)[0].float() for tokens in (row, other)
        )
        return torch.allclose(first, second, rtol=1e-3, atol=1e-4)


def _row(model: PreTrainedModel) -> IntArray:
    config = model.config.get_text_config(decoder=True)
    step = max(1, config.vocab_size // (N_TRIED + 2))
    ids = np.arange(1, N_TRIED + 2, dtype=np.int64) * step % config.vocab_size
    row: IntArray = ids[ids != getattr(config, "pad_token_id", None)][:N_TRIED]
    return row


def _of_encoder(model: PreTrainedModel, outputs: ModelOutputs) -> ModelOutputs:
    kinds = outputs.kinds
    if not kinds.labels:
        return replace(
            outputs,
            kinds=replace(kinds, pooling=kinds.pooling or Pooling.MEAN),
            is_encoder=True,
        )
    head, head_pooling = find_label_head(model, _row(model))
    return replace(outputs, head=head, head_pooling=head_pooling, is_encoder=True)


@torch.inference_mode()
def _as_decoder(model: PreTrainedModel, kinds: AnswerKinds) -> PreTrainedModel:
    """A decoder whose logits are those of labels, or the hidden states themselves."""
    config, base = model.config, model.base_model
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModelError(f"{config.model_type} has no decoder in transformers")
    head: nn.Module = model.score if kinds.labels else nn.Identity()
    row, run = _row(model), _runner(model, kinds)
    expected = run(row)
    with torch.device("meta"):
        decoder: PreTrainedModel = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    decoder.register_module(decoder.base_model_prefix, base)
    decoder.set_output_embeddings(head)
    decoder.config = config
    if any(weight.is_meta for weight in decoder.state_dict().values()):
        raise UnsupportedModelError(f"{type(decoder).__name__} has weights besides its layers")
    decoder = decoder.eval()
    decoder.set_attn_implementation("eager")
    ids = torch.from_numpy(row)[None].to(model.device)
    found = decoder(input_ids=ids, use_cache=False).logits[0, -1]
    if not torch.allclose(found.float(), expected.float(), rtol=1e-3, atol=1e-3):
        raise UnsupportedModelError(f"{type(model).__name__} changes what its head computes")
    return decoder


def _runner(model: PreTrainedModel, kinds: AnswerKinds) -> Callable[[IntArray], Tensor]:
    """Returns a function that has transformers compute a prompt: the logits of its labels, or its
    last hidden state."""

    def run(row: IntArray) -> Tensor:
        if not kinds.labels:
            return alone(model, row, 0, takes_types=False)[-1]
        logits: Tensor = model(input_ids=torch.from_numpy(row)[None].to(model.device)).logits
        return logits[0]

    return run
