"""Jobs of which nothing is known but how many devices they ask for.

To the cost model such a job is one layer whose step takes one second alone on the devices it asked for; so its work is
counted in seconds, and nothing in it tells what it computes. What it really is (a row of the measured jobs) the pool of
the world knows, and no scheduler.
"""

from __future__ import annotations

from functools import cache

from attribution_sched.cluster.models import Layer, Model, TaskType

OPAQUE = "opaque"
"""Kind of the only layer of such a model, and how its name begins."""

STEP_S = 1.0
"""A step is a second of work alone."""

REQUESTS = (1, 2, 4, 8)
"""Devices that can be asked for."""

OPAQUE_NAMES = tuple(f"{OPAQUE}-{devices}" for devices in REQUESTS)

_HELD_ELEMENTS = 4.5e9
"""Activation elements that one device of the job keeps: 9 GB at two bytes, so that the two shares of two devices never
fit one of 16 GB and single precision does not either. It stands for *as it was submitted*: on exactly these devices."""


def is_opaque(model: Model) -> bool:
    """Whether nothing is known of a model."""
    return model.layers[0].kind == OPAQUE


@cache
def opaque_model(devices: int) -> Model:
    """The model of jobs that ask for so many devices; one sample is one device's part of a step."""
    layer = Layer(
        name=OPAQUE, kind=OPAQUE, params=1.0, conv_flops=1e9, fc_flops=0.0, attention_flops=0.0,
        input_elements=1.0, output_elements=1.0, activation_elements=_HELD_ELEMENTS, score_elements=0.0,
        # Ranks that split a layer would have to exchange it all: no plan gains by more devices than were asked for.
        moved_elements=1e6, tp_reduced_elements=_HELD_ELEMENTS, tp_sharded=False,
    )  # fmt: skip
    return Model(f"{OPAQUE}-{devices}", "resnet", TaskType.VISION, (layer,), 1, (1, 1), 1.0)
