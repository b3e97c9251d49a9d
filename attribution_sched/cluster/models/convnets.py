"""ResNet-50, EfficientNet and ShuffleNet v2: stem, one layer per block, pooled head.

ResNet-50 is the common v1.5 variant (He et al. 2016, the stride moved to the 3 × 3 convolution).
EfficientNet scales depth, width and resolution of one baseline together (Tan & Le 2019): repeats are
rounded up, widths to the nearest multiple of 8 that is not below 90 % of the exact width.

What a convolution, a norm and an activation cost and keep is counted by these rules, all per image:

* A convolution from ``c`` to ``d`` channels with a ``k × k`` kernel in ``g`` groups has ``k²·c·d/g``
  weights and ``2·k²·c·d/g`` FLOPs per output position. Norms, activations and pooling have no FLOPs:
  their cost is the memory they move.
* Training keeps what each backward formula reads: the input of a convolution, the input of a batch
  norm, the input of SiLU, the output of ReLU. A tensor two operations share is counted once. The input
  of a layer is counted in that layer, its output in the next one.
* Batch norm in training reads its input twice (statistics, then scaling) and writes once; an
  activation reads and writes once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from attribution_sched.cluster.models import Layer, Model, TaskType


@dataclass(frozen=True)
class FeatureMap:
    """A square image of ``side × side`` positions with ``channels`` numbers each."""

    channels: int
    side: int

    @property
    def elements(self) -> int:
        """Numbers in the map."""
        return self.channels * self.side * self.side


class ConvTally:
    """Adds up one schedulable layer of a convolutional network, operation by operation.

    Args:
        start: The map that enters the layer. It is kept for the backward pass.
    """

    def __init__(self, start: FeatureMap) -> None:
        self.start = start
        self.params = 0
        self.conv_flops = 0
        self.fc_flops = 0
        self.kept = start.elements
        self.moved = 0

    def conv(self, source: FeatureMap, channels: int, kernel: int, *, stride: int = 1, groups: int = 1) -> FeatureMap:
        """Convolve with "same" padding and no bias, then batch-normalise; return the resulting map.

        The convolution's output is kept as the norm's input. Its own input is not: call :meth:`keep`
        on a map that was made inside the layer and is convolved.
        """
        out = FeatureMap(channels, -(-source.side // stride))
        weights = kernel * kernel * source.channels * channels // groups
        self.params += weights + 2 * channels
        self.conv_flops += 2 * weights * out.side * out.side
        self.kept += out.elements
        self.moved += source.elements + out.elements + 3 * out.elements
        return out

    def keep(self, tensor: FeatureMap) -> None:
        """Keep a map made inside the layer for the backward pass."""
        self.kept += tensor.elements

    def relu(self, tensor: FeatureMap) -> None:
        """ReLU: needs only its output, which whoever reads it keeps."""
        self.moved += 2 * tensor.elements

    def silu(self, tensor: FeatureMap) -> None:
        """SiLU: keeps its input beside the output that the next operation keeps."""
        self.kept += tensor.elements
        self.moved += 2 * tensor.elements

    def add(self, tensor: FeatureMap) -> None:
        """Add a residual branch: two reads, one write, nothing kept."""
        self.moved += 3 * tensor.elements

    def max_pool(self, source: FeatureMap, stride: int) -> FeatureMap:
        """Max-pool: keeps its input and the position of each maximum (one number per output)."""
        out = FeatureMap(source.channels, -(-source.side // stride))
        self.kept += source.elements + out.elements
        self.moved += source.elements + 2 * out.elements
        return out

    def squeeze_excite(self, source: FeatureMap, squeezed: int) -> None:
        """Scale each channel by a gate computed from the channel means (two small linear layers)."""
        c = source.channels
        self.params += 2 * c * squeezed + c + squeezed
        self.fc_flops += 4 * c * squeezed
        # Kept: the scaled map's input, the means, the hidden layer before and after SiLU, the gate.
        self.kept += source.elements + c + 2 * squeezed + c
        # Moved: read for the means, read and write for the scaling, the small layers in between.
        self.moved += 3 * source.elements + 6 * c + 4 * squeezed

    def pool_and_classify(self, source: FeatureMap, classes: int) -> None:
        """Average over all positions and apply the linear classifier with bias."""
        c = source.channels
        self.params += c * classes + classes
        self.fc_flops += 2 * c * classes
        self.kept += c
        self.moved += source.elements + 2 * c + classes

    def layer(self, name: str, kind: str, output_elements: int) -> Layer:
        """Close the tally. Convolutional layers are replicated, never tensor-sharded."""
        return Layer(
            name=name,
            kind=kind,
            params=self.params,
            conv_flops=self.conv_flops,
            fc_flops=self.fc_flops,
            attention_flops=0.0,
            input_elements=self.start.elements,
            output_elements=output_elements,
            activation_elements=self.kept,
            score_elements=0.0,
            moved_elements=self.moved,
            tp_reduced_elements=0.0,
            tp_sharded=False,
        )


_CLASSES = 1000
_RGB = 3


@dataclass(frozen=True)
class MBConvStage:
    """One stage of the EfficientNet-B0 baseline: ``repeats`` blocks of ``channels`` outputs."""

    expansion: int
    channels: int
    repeats: int
    stride: int
    kernel: int


B0_STAGES = (
    MBConvStage(1, 16, 1, 1, 3),
    MBConvStage(6, 24, 2, 2, 3),
    MBConvStage(6, 40, 2, 2, 5),
    MBConvStage(6, 80, 3, 2, 3),
    MBConvStage(6, 112, 3, 1, 5),
    MBConvStage(6, 192, 4, 2, 5),
    MBConvStage(6, 320, 1, 1, 3),
)
"""The baseline that compound scaling stretches (Tan & Le 2019, table 1)."""

RESNET50_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Inner width, blocks, stride of the first block (He et al. 2016, table 1)."""


def resnet50(name: str, *, published_params: float, resolution: int = 224) -> Model:
    """Build ResNet-50: stem, 16 bottleneck blocks, pooled classifier."""
    stem = ConvTally(FeatureMap(_RGB, resolution))
    convolved = stem.conv(stem.start, 64, 7, stride=2)
    stem.relu(convolved)
    here = stem.max_pool(convolved, 2)
    layers = [stem.layer("stem", "conv", here.elements)]
    for width, blocks, first_stride in RESNET50_STAGES:
        for index in range(blocks):
            layer, here = _bottleneck(here, width, first_stride if index == 0 else 1, len(layers))
            layers.append(layer)
    head = ConvTally(here)
    head.pool_and_classify(here, _CLASSES)
    layers.append(head.layer("head", "head", _CLASSES))
    return _vision_model(name, "resnet", layers, resolution, published_params)


def _bottleneck(source: FeatureMap, width: int, stride: int, index: int) -> tuple[Layer, FeatureMap]:
    """1 × 1 reduce, 3 × 3, 1 × 1 to four times the width, and a shortcut (projected if shapes differ)."""
    tally = ConvTally(source)
    reduced = tally.conv(source, width, 1)
    tally.relu(reduced)
    tally.keep(reduced)
    filtered = tally.conv(reduced, width, 3, stride=stride)
    tally.relu(filtered)
    tally.keep(filtered)
    out = tally.conv(filtered, 4 * width, 1)
    if out != source:
        tally.conv(source, 4 * width, 1, stride=stride)
    tally.add(out)
    tally.relu(out)
    return tally.layer(f"block {index}", "conv", out.elements), out


def round_width(channels: float, width: float, divisor: int = 8) -> int:
    """Scale a channel count and round it to a multiple of ``divisor``, never below 90 % of exact."""
    exact = channels * width
    rounded = max(divisor, int(exact + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * exact else rounded


def efficientnet(name: str, *, width: float, depth: float, resolution: int, published_params: float) -> Model:
    """Build an EfficientNet from its compound-scaling triple.

    Args:
        name: Catalogue name.
        width: Factor on every channel count.
        depth: Factor on every repeat count.
        resolution: Side of the square input image.
        published_params: Parameter count stated by the authors.
    """
    stem = ConvTally(FeatureMap(_RGB, resolution))
    here = stem.conv(stem.start, round_width(32, width), 3, stride=2)
    stem.silu(here)
    layers = [stem.layer("stem", "conv", here.elements)]
    for stage in B0_STAGES:
        for index in range(math.ceil(depth * stage.repeats)):
            stride = stage.stride if index == 0 else 1
            layer, here = _mbconv(here, stage, round_width(stage.channels, width), stride, len(layers))
            layers.append(layer)
    head = ConvTally(here)
    features = head.conv(here, round_width(1280, width), 1)
    head.silu(features)
    head.pool_and_classify(features, _CLASSES)
    layers.append(head.layer("head", "head", _CLASSES))
    return _vision_model(name, "efficientnet", layers, resolution, published_params)


def _mbconv(source: FeatureMap, stage: MBConvStage, channels: int, stride: int, index: int) -> tuple[Layer, FeatureMap]:
    """Expand, depthwise convolve, squeeze and excite, project; add the input where shapes allow."""
    tally = ConvTally(source)
    wide = source
    if stage.expansion != 1:
        wide = tally.conv(source, source.channels * stage.expansion, 1)
        tally.silu(wide)
        tally.keep(wide)
    filtered = tally.conv(wide, wide.channels, stage.kernel, stride=stride, groups=wide.channels)
    tally.silu(filtered)
    # The squeeze is a quarter of the block's input width, not of the expanded width.
    tally.squeeze_excite(filtered, max(1, source.channels // 4))
    tally.keep(filtered)
    out = tally.conv(filtered, channels, 1)
    if out == source and stride == 1:
        tally.add(out)
    return tally.layer(f"block {index}", "conv", out.elements), out


SHUFFLENET_STAGES = ((116, 4), (232, 8), (464, 4))
"""Output channels and units of the stages at width 1.0 (Ma et al. 2018, table 5); the first unit halves the image."""


def shufflenet_v2(name: str, *, published_params: float, resolution: int = 224, classes: int = _CLASSES) -> Model:
    """Build ShuffleNet v2 at width 1.0; small images (CIFAR) meet a stem without stride and pooling."""
    small = resolution <= 64
    stem = ConvTally(FeatureMap(_RGB, resolution))
    here = stem.conv(stem.start, 24, 3, stride=1 if small else 2)
    stem.relu(here)
    if not small:
        here = stem.max_pool(here, 2)
    layers = [stem.layer("stem", "conv", here.elements)]
    for channels, units in SHUFFLENET_STAGES:
        for index in range(units):
            layer, here = _shuffle_unit(here, channels, index == 0, len(layers))
            layers.append(layer)
    head = ConvTally(here)
    features = head.conv(here, 1024, 1)
    head.relu(features)
    head.pool_and_classify(features, classes)
    layers.append(head.layer("head", "head", classes))
    return _vision_model(name, "shufflenet", layers, resolution, published_params)


def _shuffle_unit(source: FeatureMap, channels: int, down: bool, index: int) -> tuple[Layer, FeatureMap]:
    """Half the channels pass (or are halved in size) and half are convolved 1 × 1, depthwise, 1 × 1; then shuffled."""
    tally = ConvTally(source)
    half = channels // 2
    branch = source if down else FeatureMap(half, source.side)
    wide = tally.conv(branch, half, 1)
    tally.relu(wide)
    tally.keep(wide)
    filtered = tally.conv(wide, half, 3, stride=2 if down else 1, groups=half)
    out = tally.conv(filtered, half, 1)
    tally.relu(out)
    if down:
        passed = tally.conv(source, source.channels, 3, stride=2, groups=source.channels)
        tally.relu(tally.conv(passed, half, 1))
    joined = FeatureMap(channels, out.side)
    # Concatenating and shuffling read and write every channel once.
    tally.moved += 2 * joined.elements
    return tally.layer(f"block {index}", "conv", joined.elements), joined


def _vision_model(name: str, family: str, layers: list[Layer], resolution: int, published_params: float) -> Model:
    return Model(
        name=name,
        family=family,
        task_type=TaskType.VISION,
        layers=tuple(layers),
        sequence_length=1,
        input_size=(resolution, resolution),
        published_params=published_params,
    )
