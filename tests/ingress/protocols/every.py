"""All adapters, as parameters of a test."""

import pytest

from tests.ingress.protocols.chats import CHATS, Chats
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.native import NATIVE
from tests.ingress.protocols.protocol import Caller, Protocol
from tests.ingress.protocols.responses import RESPONSES


class NativeChats(Chats):
    """Chats of llama-server's paths: answers are OpenAI's, and errors are not."""

    name = "native chat"
    path = "/chat/completions"
    count_path = "/chat/completions/input_tokens"


NATIVE_CHATS = NativeChats()
PROTOCOLS: list[Protocol] = [CHATS, COMPLETIONS, RESPONSES, MESSAGES, NATIVE]
CALLERS: list[Caller] = [CHATS, RESPONSES, MESSAGES]
EACH = pytest.mark.parametrize("protocol", PROTOCOLS, ids=str)
EACH_CALLER = pytest.mark.parametrize("protocol", CALLERS, ids=str)
EACH_STREAM = pytest.mark.parametrize("stream", [False, True], ids=["unary", "stream"])
