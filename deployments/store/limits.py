"""How much an owner may store."""

from dataclasses import dataclass

from deployments.contract.errors import ErrorKind, Refused

ROW_BYTES = 256  # that a row is counted as, beside its body; tombstones too


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """max_messages: of a chat.
    max_message_bytes: of a message, and of a chat without its messages.
    max_owner_bytes: of all chats and files.
    """

    max_chats: int = 10_000
    max_messages: int = 5_000
    max_message_bytes: int = 4 << 20
    max_file_bytes: int = 64 << 20
    max_owner_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLimits:
    """The limits of what OpenAI's protocol keeps.

    Responses push out older ones. What is too much for conversations is refused.

    max_response_bytes: with what responses have of conversations that were deleted.
    max_items: of a conversation.
    max_conversation_bytes: of all of them together.
    """

    max_responses: int = 4096
    max_response_bytes: int = 256 << 20
    max_conversations: int = 10_000
    max_items: int = 10_000
    max_conversation_bytes: int = 256 << 20


def too_much(what: str, limit: int, name: str, param: str | None = None) -> Refused:
    """Returns the refusal to raise. `name` is the setting."""
    message = f"{what}: {limit:,} is the most that this server stores (`{name}`)"
    return Refused.of_kind(ErrorKind.BODY_TOO_LARGE, message, param)


def storage_full(limit: int) -> Refused:
    message = (
        f"All that is stored for this owner would be more than {limit:,} bytes "
        "(`max_owner_bytes`): delete some of it"
    )
    return Refused.of_kind(ErrorKind.STORAGE_FULL, message)
