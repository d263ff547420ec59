"""Values as a presets file writes them, read one by one; raises ValueError with what is allowed."""

import re

from deployments.engine.loading.gguf.names import is_gguf, split_hub_name

BOOLEAN_WORDS = {
    **dict.fromkeys(("on", "enabled", "true", "1"), True),
    **dict.fromkeys(("off", "disabled", "false", "0"), False),
}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


def boolean(text: str) -> bool:
    if text not in BOOLEAN_WORDS:
        raise ValueError(f"must be one of {', '.join(BOOLEAN_WORDS)}")
    return BOOLEAN_WORDS[text]


def comma_separated(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def bar_separated(text: str) -> tuple[str, ...]:
    """Splits a list whose items may have commas."""
    return tuple(part.strip() for part in text.split("|") if part.strip())


def hub_id(text: str) -> str:
    """Reads a repository, with a tag where it has GGUF files."""
    if not HUB_ID.fullmatch(text) and split_hub_name(text) is None:
        raise ValueError(
            "must be a repository of the Hugging Face hub: owner/name, or owner/name:Q4_K_M for "
            "one of its GGUF files"
        )
    return text


def hub_file(text: str) -> str:
    """Reads the name of a file whose repository another key says."""
    if split_hub_name(f"a/b:{text}") is None or not is_gguf(text):
        raise ValueError("must be the name of a GGUF file in hf-repo")
    return f":{text}"


def with_hub_file(model: str, file: str) -> str:
    """Joins a repository, whose tag says nothing then, and a value of `hub_file`."""
    repository = model.partition(":")[0]
    if not HUB_ID.fullmatch(repository):
        raise ValueError("hf-file is of hf-repo, and model is a path: say one of the two")
    return f"{repository}{file}"


def embed_only(text: str) -> str | None:
    return "embed" if boolean(text) else None


def rerank_only(text: str) -> str | None:
    return "score" if boolean(text) else None


def gpus_for_layers(text: str) -> float:
    """A model is on its GPUs as a whole or not at all."""
    if not re.fullmatch(r"-?\d+|auto|all", text):
        raise ValueError("must be a number of layers, auto or all")
    return 0.0 if re.fullmatch(r"-?0+", text) else 1.0


def plain_adapters(text: str) -> tuple[dict[str, object], ...]:
    return tuple({"path": path, "scale": 1.0} for path in comma_separated(text))


def scaled_adapters(text: str) -> tuple[dict[str, object], ...]:
    return tuple(_scaled(part) for part in comma_separated(text))


def named_adapters(text: str) -> tuple[object, ...]:
    return tuple(map(named_adapter, comma_separated(text)))


def named_adapter(value: object) -> object:
    """NAME=FOLDER or NAME=FOLDER:SCALE, where what follows a colon is no scale unless a number."""
    if not isinstance(value, str):
        return value
    name, equals, path = (part.strip() for part in value.partition("="))
    if not equals or not name or not path:
        raise ValueError("must be NAME=FOLDER or NAME=FOLDER:SCALE, or several of them with commas")
    folder, _, scale = path.rpartition(":")
    if folder and NUMBER.fullmatch(scale):
        return {"name": name, "path": folder, "scale": float(scale)}
    return {"name": name, "path": path}


def _scaled(text: str) -> dict[str, object]:
    path, colon, scale = text.rpartition(":")
    if not colon or not path:
        raise ValueError("must be FOLDER:SCALE, or several of them with commas")
    return {"path": path, "scale": scale}
