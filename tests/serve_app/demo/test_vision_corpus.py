"""Pictures show what their scenes say, answers follow from them, and none is held out and shown."""

from itertools import islice
from math import dist

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from deployments.text.reply import Reply
from serve_app.demo.evaluation.scoring import fits
from serve_app.demo.training.corpus.split import SeededDraw, is_held, normal
from serve_app.demo.training.vision import scenes
from serve_app.demo.training.vision.corpus import EVALUATED, KINDS, Lesson, cases, lesson
from serve_app.demo.training.vision.drawing import LINE, SHADES, THINGS, Label, drawn, labels
from serve_app.demo.training.vision.scenes import COLOURS, Bars, Item, Shapes, Writing
from tests.effort import tries

GRID = 8


@pytest.fixture(scope="module")
def lessons() -> list[Lesson]:
    return [lesson(f"proof {at}", 4, (1, 2)) for at in range(tries(150, 3000))]


def nearest(pixel: tuple[int, ...]) -> str:
    return min(COLOURS, key=lambda name: min(dist(pixel[:3], shade) for shade in COLOURS[name]))


def pieces(picture: Image.Image) -> int:
    """Areas that are not background, which is the corner's colour."""
    ground = Image.new("RGB", picture.size, picture.getpixel((0, 0)))
    mask = ImageChops.difference(picture, ground).convert("L").point(lambda p: 255 * (p > 0))
    mask = mask.filter(ImageFilter.MaxFilter(3))  # a tip may be apart by a pixel
    found = 0
    while (box := mask.getbbox()) is not None:
        top = next(x for x in range(box[0], box[2]) if mask.getpixel((x, box[1])))
        ImageDraw.floodfill(mask, (top, box[1]), 0)
        found += 1
    return found


def test_a_picture_is_a_function_of_its_scene_and_seed(lessons: list[Lesson]) -> None:
    for at, each in enumerate(lessons[:40]):
        again = lesson(f"proof {at}", 4, (1, 2))
        assert again.chats == each.chats
        assert again.picture.tobytes() == each.picture.tobytes()
        assert drawn(each.scene, "another seed").tobytes() != each.picture.tobytes()


def test_shapes_have_their_colours_and_are_as_many_as_the_scene_says() -> None:
    draw = SeededDraw("pixels")
    for at in range(tries(30, 300)):
        scene = scenes.many(draw, 1 + at % 5)
        picture = drawn(scene, at)
        assert pieces(picture) == len(scene.items) == 1 + at % 5
        for item in scene.items:
            ring = 0.4 * item.size if item.shape == "ring" else 0.0
            x, y = ((place * picture.width) for place in (item.x - ring, item.y))
            pixel = picture.getpixel((round(x), round(y)))
            assert isinstance(pixel, tuple)
            assert nearest(pixel) == item.colour


def test_patches_are_labelled_with_what_is_drawn_there() -> None:
    draw = SeededDraw("patches")
    for at in range(tries(20, 300)):
        scene = scenes.few(draw, 1 + at % 3)
        found = labels(scene, GRID).view(GRID, GRID, -1)
        shades = [item.colour for item in scene.items]
        for item in scene.items:
            label = Label(*found[int(item.y * GRID), int(item.x * GRID)].tolist())
            assert label[:2] == (THINGS[item.shape], SHADES[item.colour])
            assert label[4:8] == (0, 1, shades.count(item.colour), len(scene.items))
            words = item.place.split()
            assert not words or label.row == 1 + scenes.ROWS.index(words[0])
            assert not words or label.column == 1 + scenes.COLUMNS.index(words[-1])
    writing = labels(Writing("42", "red", "white", 0.5, 0.5, 0.5), GRID).view(GRID, GRID, -1)
    row = [Label(*values) for values in dict.fromkeys(map(tuple, writing[GRID // 2].tolist()))]
    read = [(patch.thing, patch.order, patch.all) for patch in row if patch.thing]
    assert read == [(THINGS["4"], 1, 2), (THINGS["2"], 2, 2)]
    assert all(patch[LINE : LINE + 3] == (5, 3, 0) for patch in row if patch.thing)
    bars = labels(Bars(("red", "blue"), (1.0, 0.3), "white", False), GRID).view(GRID, GRID, -1)
    assert set(bars[2, :, 1].tolist()) == {0, SHADES["red"]}
    assert set(bars[6, :, 1].tolist()) == {0, SHADES["red"], SHADES["blue"]}


def test_a_place_is_named_where_it_is_plain_alone() -> None:
    places = {(0.2, 0.2): "top left", (0.5, 0.5): "middle", (0.8, 0.5): "middle right"}
    places |= {(0.5, 0.9): "bottom middle", (0.39, 0.5): "", (0.5, 0.61): ""}
    for (x, y), place in places.items():
        assert Item("star", "red", x, y, 0.2).place == place


def test_every_kind_of_picture_comes_with_right_answers(lessons: list[Lesson]) -> None:
    kinds = {type(each.scene) for each in lessons}
    assert kinds == {Shapes, Writing, Bars}
    assert len(KINDS) == 5
    for each in lessons:
        for exchange in (exchange for chat in each.chats for exchange in chat):
            given = Reply(exchange.answer, "", ())
            assert fits(exchange.expect, given) or exchange.answer.casefold() in (
                exchange.short.casefold(),
                f"{exchange.short.casefold()}.",
            )


@pytest.mark.parametrize("kind", EVALUATED)
def test_a_case_accepts_its_answer_and_not_another_ones(kind: str) -> None:
    some = list(islice(cases(kind), 40))
    assert all(fits(case.expect, Reply(case.answer, "", ())) for case in some)
    answers = {case.answer for case in some}
    assert not all(fits(case.expect, Reply(answer, "", ())) for case in some for answer in answers)


def test_what_is_asked_for_a_score_is_never_shown(lessons: list[Lesson]) -> None:
    held = [case for kind in EVALUATED for case in islice(cases(kind), 60)]
    for case in held:
        assert all(map(is_held, held_things(case.scene)))
    for each in lessons:
        assert not any(map(is_held, held_things(each.scene)))
    asked = {normal(case.question) for case in held}
    shown = {
        normal(exchange.question) for each in lessons for chat in each.chats for exchange in chat
    }
    assert not asked & shown


def held_things(scene: scenes.Scene) -> list[str]:
    """Returns the things that decide whether a picture is held out for evaluation."""
    match scene:
        case Shapes():
            return [item.name for item in scene.items]
        case Writing() if scene.text.isdigit():
            return [scene.text] if len(scene.text) > 1 else []
        case Writing():
            return [f"{scene.text} {scene.colour} {scene.background}"]
        case Bars():
            return [" ".join(scene.colours)]
