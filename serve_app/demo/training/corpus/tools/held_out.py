"""Tools for evaluation alone: written by hand, and never shown in training."""

from serve_app.demo.training.corpus.chat import Exchange, SampleCall, SampleTool, Talk, said
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.tools.calls import NO_TOOL
from serve_app.demo.training.corpus.tools.kinds import HELD_OUT, ToolKind


def tool_of(kind: ToolKind) -> SampleTool:
    properties = {slot.names[0]: {"type": slot.type} for slot in kind.slots}
    return SampleTool(kind.names[0], kind.about[0], properties, tuple(properties))


def _asked(draw: SeededDraw, kind: ToolKind) -> Exchange:
    values = [slot.make(draw) for slot in kind.slots]
    tool, question = tool_of(kind), draw.choice(kind.asks).format(*values)
    arguments = dict(zip(tool.properties, values, strict=True))
    return Exchange(question, "", calls=(SampleCall(tool.name, arguments),))


def written_calling(draw: SeededDraw) -> Talk:
    kind = draw.choice(HELD_OUT)
    others = [each for each in draw.sample(HELD_OUT, 3) if each is not kind]
    tools = [kind, *others[: draw.randint(0, 2)]]
    draw.shuffle(tools)
    return Talk([_asked(draw, kind)], tools=tuple(map(tool_of, tools)))


def written_without(draw: SeededDraw) -> Talk:
    """Asks some tools for what only another one can do."""
    wanted, *others = draw.sample(HELD_OUT, draw.randint(2, 4))
    question = _asked(draw, wanted).question
    return Talk([said(question, NO_TOOL, "no tool")], tools=tuple(map(tool_of, others)))
