"""Arithmetic of convolutional layers: what a convolution, a norm and an activation cost and keep.

Counting rules, all per image:

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

from dataclasses import dataclass

from attribution_sched.cluster.layers import Layer


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
