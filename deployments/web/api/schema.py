"""The bodies that the store's endpoints take. What only the page reads is any JSON of its type."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from deployments.ingress.http.schema import NO_ZERO_BYTE, SHA256, UUID, Items, Strict
from deployments.store.rows import ChatFields, MessageFields, canonical

MAX_TITLE = 1000  # characters
MAX_MESSAGES = 100  # of a request
MAX_ATTACHMENTS = 64
MAX_CALLS = 256

Id = Annotated[str, Field(pattern=UUID)]
Time = Annotated[int, Field(ge=0, lt=2**53)]  # ms since 1970
Name = Annotated[str, Field(max_length=512)]
JsonObject = dict[str, JsonValue]
CHAT_COLUMNS = {"title", "leaf", "pinned", "created_at", "updated_at"}
MESSAGE_COLUMNS = {"id", "parent", "role", "created_at"}


class ChatBody(Strict):
    title: Annotated[str, Field(max_length=MAX_TITLE, pattern=NO_ZERO_BYTE)]
    title_by: Literal["first_line", "model", "person"] = "first_line"
    leaf: Id | None = None
    pinned: bool = False
    model: Name | None = None
    system: str = ""
    settings: JsonObject = Field(default_factory=dict)
    forked_from: Id | None = None
    created_at: Time
    updated_at: Time

    def fields(self) -> ChatFields:
        others = self.model_dump(exclude=CHAT_COLUMNS)
        if self.forked_from is None:
            del others["forked_from"]
        return ChatFields(
            title=self.title,
            leaf=self.leaf,
            pinned=self.pinned,
            created_at=self.created_at,
            updated_at=self.updated_at,
            body=canonical(others),
        )


class StoredToolCall(Strict):
    id: Name
    name: Name
    arguments: str


class Attachment(Strict):
    name: Name
    type: Name
    size: Annotated[int, Field(ge=0, lt=2**53)]
    sha256: Annotated[str, Field(pattern=SHA256)]
    sent_as: Literal["text", "images", "raw"] = Field(alias="as")


class MessageBody(Strict):
    id: Id
    parent: Id | None = None
    role: Literal["system", "user", "assistant", "tool"]
    text: str
    reasoning: str | None = None
    tool_calls: Annotated[Items[StoredToolCall], Field(max_length=MAX_CALLS)] | None = None
    tool_call_id: Name | None = None
    attachments: Annotated[Items[Attachment], Field(max_length=MAX_ATTACHMENTS)] = Field(
        default_factory=list
    )
    model: Name | None = None
    params: JsonObject | None = None
    usage: JsonObject | None = None
    timings: JsonObject | None = None
    finish: Literal["stop", "length", "tool_calls", "stopped", "interrupted", "error"] | None = None
    error: JsonObject | None = None
    completion_id: Name | None = None
    created_at: Time

    def fields(self) -> MessageFields:
        given = self.model_dump(by_alias=True, exclude=MESSAGE_COLUMNS)
        return MessageFields(
            id=self.id,
            parent=self.parent,
            role=self.role,
            created_at=self.created_at,
            body=canonical({name: value for name, value in given.items() if value is not None}),
            files=frozenset(attachment.sha256 for attachment in self.attachments),
        )


class MessagesBody(Strict):
    messages: Annotated[Items[MessageBody], Field(min_length=1, max_length=MAX_MESSAGES)]
