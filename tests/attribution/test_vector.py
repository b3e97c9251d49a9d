import json

import numpy as np
import pytest

from attribution_sched.attribution.vector import AttributionVector, single
from attribution_sched.errors import ModelFitError, SettingsError

NAMES = ("cpu", "gpu", "memory")


def make(values=(1.0, -2.0, 3.0), base=10.0, prediction=12.0, error=(0.1, 0.1, 0.1), **more):
    return AttributionVector(np.array(values), NAMES, base, np.array(prediction), np.array(error), **more)


def test_parts_and_base_add_up_or_the_vector_is_refused():
    assert make().prediction == 12.0
    with pytest.raises(ModelFitError, match="add up"):
        make(prediction=12.001)


def test_the_tolerance_is_relative_to_the_prediction():
    make(values=(1e6, 0, 0), base=0.0, prediction=1e6 + 0.5)
    with pytest.raises(ModelFitError):
        make(values=(1e6, 0, 0), base=0.0, prediction=1e6 + 5)


def test_it_cannot_be_edited():
    vector = make()
    with pytest.raises(ValueError, match="read-only"):
        vector.values[0] = 5
    with pytest.raises(AttributeError):
        vector.base = 3.0
    with pytest.raises(TypeError):
        vector.provenance["seed"] = 1


def test_the_callers_array_stays_writable():
    mine = np.array([1.0, 2.0, 3.0])
    single(mine, NAMES, 0.0)
    mine[0] = 9.0


def test_normalised_shares_have_unit_magnitude_and_keep_signs():
    shares = make().normalised()
    np.testing.assert_allclose(shares, [1 / 6, -2 / 6, 3 / 6])
    assert single(np.zeros(3), NAMES, 5.0).normalised().tolist() == [0, 0, 0]


def test_batches_rows_and_names():
    batch = AttributionVector(np.eye(3), NAMES, 1.0, np.full(3, 2.0), np.zeros((3, 3)))
    assert len(batch) == 3
    assert batch["gpu"].tolist() == [0, 1, 0]
    assert batch.row(1).values.tolist() == [0, 1, 0]
    assert make()["memory"] == 3.0
    assert make().ranking() == ("memory", "gpu", "cpu")
    with pytest.raises(ModelFitError, match="Did you mean 'memory'"):
        make()["memori"]


def test_interval_is_symmetric_and_widens_with_the_level():
    low, high = make().interval(0.95)
    np.testing.assert_allclose(high - make().values, 1.959964 * 0.1, rtol=1e-5)
    assert (make().interval(0.99)[0] < low).all()
    with pytest.raises(SettingsError, match="level"):
        make().interval(1.5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"values": (1.0, 2.0)}, "must be"),
        ({"values": (np.nan, 1.0, 1.0)}, "finite"),
        ({"error": (0.1, 0.1)}, "standard_error"),
        ({"prediction": (12.0,)}, "prediction"),
    ],
)
def test_wrong_shapes_and_values_are_refused(change, match):
    with pytest.raises(ModelFitError, match=match):
        make(**change)


def test_as_dict_is_json():
    text = json.dumps(make(provenance={"seed": 3}, method="emshap(gaussian)").as_dict())
    assert json.loads(text)["provenance"] == {"seed": 3}


def test_students_factor_follows_the_level_and_the_degrees_of_freedom():
    from scipy.stats import t

    values = np.array([1.0, 2.0])
    vector = AttributionVector(
        values, ("a", "b"), 0.0, np.array(3.0), np.full(2, 0.1), provenance={"degrees_of_freedom": 3}
    )
    for level in (0.5, 0.68, 0.95, 0.99):
        low, high = vector.interval(level)
        np.testing.assert_allclose((high - low) / 2, 0.1 * t.ppf(0.5 + level / 2, 3))
