"""Which processors of transformers are known, by the names of their classes."""

from collections.abc import Callable, Mapping

from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.media.families.described import Described
from deployments.media.families.gemma3 import gemma3_rules, gemma3n_rules
from deployments.media.families.gemma4 import gemma4_rules
from deployments.media.families.idefics3 import idefics3_rules
from deployments.media.families.internvl import internvl_rules
from deployments.media.families.llama4 import llama4_rules
from deployments.media.families.llava import llava_rules
from deployments.media.families.llava_next import llava_next_rules, llava_onevision_rules
from deployments.media.families.pixtral import pixtral_rules
from deployments.media.families.qwen_vl import qwen_vl_rules
from deployments.media.families.whisper_audio import qwen2_audio_rules, voxtral_rules

FAMILIES: Mapping[str, Callable[[Described], MediaRules]] = {
    "Gemma3Processor": gemma3_rules,
    "Gemma3nProcessor": gemma3n_rules,
    "Gemma4Processor": gemma4_rules,
    "Idefics3Processor": idefics3_rules,
    "InternVLProcessor": internvl_rules,
    "Llama4Processor": llama4_rules,
    "LlavaNextProcessor": llava_next_rules,
    "LlavaOnevisionProcessor": llava_onevision_rules,
    "LlavaProcessor": llava_rules,
    "PixtralProcessor": pixtral_rules,
    "Qwen2AudioProcessor": qwen2_audio_rules,
    "Qwen2VLProcessor": qwen_vl_rules,
    "Qwen2_5_VLProcessor": qwen_vl_rules,
    "Qwen3VLProcessor": qwen_vl_rules,
    "SmolVLMProcessor": idefics3_rules,
    "VoxtralProcessor": voxtral_rules,
}

# Those that hear. Gemma 4's has sounds too, which its family does not encode.
HEARING = frozenset({"Gemma3nProcessor", "Qwen2AudioProcessor", "VoxtralProcessor"})
BLIND = frozenset({"Qwen2AudioProcessor", "VoxtralProcessor"})


def kinds_of(name: str) -> tuple[MediaKind, ...]:
    """Kinds of media that models with a processor of this class take, if they have towers."""
    if name not in FAMILIES:
        return ()
    images = () if name in BLIND else (MediaKind.IMAGE,)
    return (*images, MediaKind.AUDIO) if name in HEARING else images


def processor_of(model_type: str) -> str | None:
    """The class that most models of a type have, whose files need not name it. None: not known."""
    wanted = f"{model_type}processor".replace("_", "")
    return next((name for name in FAMILIES if name.lower().replace("_", "") == wanted), None)


def rules_of(processor: Described) -> MediaRules | None:
    """None for a processor that is not known. Raises UnknownProcessorError."""
    family = FAMILIES.get(type(processor).__name__)
    return None if family is None else family(processor)
