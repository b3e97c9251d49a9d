"""Figures as SVG whose text stays text: whoever reads them has the fonts, whoever writes them needs none.

Matplotlib's own SVG with ``svg.fonttype: none`` leaves two things open. It measures text with the fonts of the writing
machine and warns where they lack a glyph; and it sets lines of text by their left end, which is right only if the
reader's font is as wide as the writer's. Here missing glyphs are measured by stand-ins of the same width, and every
line is anchored where its alignment says.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width
from xml.etree import ElementTree

import matplotlib
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import FigureCanvasSVG, RendererSVG
from matplotlib.font_manager import findfont, get_font
from matplotlib.text import Text
from matplotlib.transforms import IdentityTransform

from attribution_sched.explain.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.font_manager import FontProperties

IMAGE_DPI = 150
"""Of the few things inside a figure that stay pixels: cells of large heatmaps, colour bars."""

WIDE_STAND_IN, NARROW_STAND_IN = "—", "n"
"""Measured in place of glyphs that no font here has: an em dash is one em wide, as Chinese characters are."""

ENLARGED = 1.15
"""How much larger than drawn a figure may be shown."""

_ANCHORS = {"left": 0.0, "center": 0.5, "right": 1.0}
_NUMBERS = re.compile(r"-?\d+\.\d{3,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_FAMILY = re.compile(r"\s*font-family:[^;]*;?")
_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class Svg:
    """A figure as a fragment of HTML.

    Attributes:
        markup: The ``<svg>`` element: no script, no address, no font, ids that begin with the figure's name.
        width: In pixels of the page.
        height: The same.
    """

    markup: str
    width: int
    height: int


def to_svg(draw: Callable[[], Axes], inches: float, name: str, label: str = "", kind: str = "") -> Svg:
    """Draw a figure at a width, as an ``<svg>`` element to be put inside a page.

    Args:
        draw: Draws it on new axes of :func:`~attribution_sched.explain.plots.style.axes`.
        inches: Width.
        name: Begins every id inside, so unique on the page.
        label: What it shows, for those who do not see it.
        kind: Class of the element.
    """
    written = io.BytesIO()
    # The salt makes the same figure the same bytes.
    with style.canvas(inches, text=True), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        figure = draw().get_figure(root=True)
        if figure is None:
            raise RuntimeError("the axes belong to no figure")
        _Canvas(figure).print_figure(
            written, format="svg", dpi=IMAGE_DPI, facecolor="white", metadata=_METADATA, bbox_inches=None
        )
        width, height = (round(96 * float(size)) for size in figure.get_size_inches())
    root = ElementTree.fromstring(written.getvalue())
    box = root.get("viewBox", "")
    root.attrib.clear()
    # A small figure is not blown up to the width of the column.
    style_ = f"max-width:{round(ENLARGED * width)}px"
    shape = {"class": kind, "viewBox": box, "width": str(width), "height": str(height), "style": style_, "role": "img"}
    root.attrib.update({key: value for key, value in {**shape, "aria-label": label}.items() if value})
    _clean(root, name)
    return Svg(ElementTree.tostring(root, encoding="unicode"), width, height)


def drawable(text: str, lacking: Callable[[str], bool]) -> str:
    """The text with a stand-in of about the same width for every character that is lacking."""
    if text.isascii():
        return text
    return "".join(
        letter if not lacking(letter) else WIDE_STAND_IN if east_asian_width(letter) in "WF" else NARROW_STAND_IN
        for letter in text
    )


class _Line:
    """What the renderer asks of a text, for one line of it: an anchor on the line's own baseline."""

    def __init__(self, x: float, y: float, align: str) -> None:
        self.at, self.align = (x, y), align

    def get_rotation_mode(self) -> str:
        return "anchor"

    def get_transform(self) -> IdentityTransform:
        return IdentityTransform()

    def get_unitless_position(self) -> tuple[float, float]:
        return self.at

    def get_ha(self) -> str:
        return self.align


class _Renderer(RendererSVG):
    """Text is measured without any Chinese font, and anchored line by line."""

    def __init__(self, figure: Any, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)  # type: ignore[no-untyped-call]
        self._figure = figure
        self._texts: dict[int, Text] = {}

    def get_text_width_height_descent(self, s: str, prop: FontProperties, ismath: Any) -> tuple[float, float, float]:
        if not ismath:
            font = get_font(findfont(prop))
            # Wide characters are measured by stand-ins even where a font has them: the same file on every machine.
            s = drawable(s, lambda letter: east_asian_width(letter) in "WF" or not font.get_char_index(ord(letter)))
        size: tuple[float, float, float]
        size = super().get_text_width_height_descent(s, prop, ismath)  # type: ignore[no-untyped-call]
        return size

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: FontProperties, angle: float, ismath: Any = False,
        mtext: Text | None = None,
    ) -> None:  # fmt: skip
        line = None if ismath else self._line(x, y, s, prop, angle)
        super().draw_text(gc, x, y, s, prop, angle, ismath, line)  # type: ignore[no-untyped-call]

    def _line(self, x: float, y: float, s: str, prop: FontProperties, angle: float) -> _Line:
        align = "left"
        text = self._text_of(prop)
        if text is not None:
            # Names of vertical axes stand on end: along their line they are centred, whatever their box is.
            align = "center" if angle % 180 == 90 else str(text.get_horizontalalignment())
        along = _ANCHORS[align] * self.get_text_width_height_descent(s, prop, False)[0]
        turn = math.radians(angle)
        return _Line(x + along * math.cos(turn), self.height - (y - along * math.sin(turn)), align)

    def _text_of(self, prop: FontProperties) -> Text | None:
        """The text a line belongs to, known by its font, which it shares with no other."""
        if id(prop) not in self._texts:
            self._texts = {id(text.get_fontproperties()): text for text in self._figure.findobj(Text)}
        return self._texts.get(id(prop))


class _Canvas(FigureCanvasSVG):
    """Matplotlib's canvas with the renderer above, for drawing and for layout."""

    def print_svg(self, filename: Any, *, bbox_inches_restore: Any = None, metadata: Any = None, **_: Any) -> None:
        held = io.StringIO()
        dpi = self.figure.dpi
        self.figure.dpi = 72
        width, height = self.figure.get_size_inches()
        inner = _Renderer(self.figure, 72 * width, 72 * height, held, image_dpi=dpi, metadata=metadata)
        renderer = MixedModeRenderer(self.figure, width, height, dpi, inner, bbox_inches_restore=bbox_inches_restore)  # type: ignore[no-untyped-call]
        self.figure.draw(renderer)  # type: ignore[arg-type]
        renderer.finalize()
        filename.write(held.getvalue().encode())


def _clean(root: ElementTree.Element, name: str) -> None:
    """Keep what is drawn: no metadata, no rules for the whole page, no fonts, ids only where something points."""
    for parent in root.iter():
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}style")):
                parent.remove(child)
    elements = list(root.iter())
    used: set[str] = set()
    for element in elements:
        for key, value in list(element.attrib.items()):
            used.update(_REFERENCE.findall(value))
            if key.endswith("}href") or key == "href":
                del element.attrib[key]
                element.attrib["href"] = value
                used.update([value[1:]] if value.startswith("#") else [])
    for element in elements:
        element.tag = element.tag.partition("}")[2] or element.tag
        for key, value in list(element.attrib.items()):
            if key == "id":
                if value in used:
                    element.attrib["id"] = f"{name}-{value}"
                else:
                    del element.attrib["id"]
                continue
            if key == "href" and value.startswith("#"):
                value = f"#{name}-{value[1:]}"
            elif key in ("d", "x", "y", "transform", "width", "height", "points"):
                value = _NUMBERS.sub(_rounded, value)
            elif key in ("style", "clip-path"):
                value = _FAMILY.sub("", _REFERENCE.sub(rf"url(#{name}-\1)", value)).strip()
            element.attrib[key] = value
        # Line ends between elements are worth nothing to a browser.
        element.tail = None
        if element.text is not None and not element.text.strip():
            element.text = None


def _rounded(found: re.Match[str]) -> str:
    """A coordinate to a hundredth of a point."""
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")
