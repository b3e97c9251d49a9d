"""Settings of what goes wrong on the way: links that are cut, domains that are lost; domains go by their names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from attribution_sched.config.fields import Name, Record, Switch, Why, broken_rule

_CENTURY = Why("a century has 876,600 hours")


class _Window(Record):
    start_h: Annotated[float, Field(strict=True, ge=0, le=1e6, allow_inf_nan=False), _CENTURY]
    end_h: Annotated[float, Field(strict=True, gt=0, le=1e6, allow_inf_nan=False), _CENTURY]

    @model_validator(mode="after")
    def _forward(self) -> Self:
        if not self.end_h > self.start_h:
            rule = f"must lie after start_h = {self.start_h:g}"
            raise broken_rule(rule, "Give the hour at which it is over", key=("end_h",), value=self.end_h)
        return self


class BurstSettings(_Window):
    """Hours with another rate of arrivals, see :class:`attribution_sched.cluster.arrivals.Burst`.

    Attributes:
        start_h: When it begins, hours from the start of the run.
        end_h: When it is over.
        factor: What the rate is multiplied by.
    """

    factor: Annotated[
        float,
        Field(strict=True, ge=1e-3, le=1e3, allow_inf_nan=False),
        Why("arrivals are drawn at the larger rate and thinned to the smaller, one by one"),
    ]


class LinkCutSettings(_Window):
    """A link that carries less for a while, see :class:`attribution_sched.cluster.incidents.LinkCut`.

    Attributes:
        kind: ``link_cut``.
        source: Domain at one end.
        target: Domain at the other.
        start_h: When it begins, hours from the start of the run.
        end_h: When it is over.
        factor: What is left of the bandwidth.
        both_ways: Whether the way back suffers too.
    """

    kind: Literal["link_cut"]
    source: Name
    target: Name
    factor: Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]
    both_ways: Switch = True

    @model_validator(mode="after")
    def _two_ends(self) -> Self:
        if self.source == self.target:
            raise broken_rule("must differ from source", "Name two domains", key=("target",), value=self.target)
        return self


class DomainLossSettings(_Window):
    """A domain that is gone for a while, see :class:`attribution_sched.cluster.incidents.DomainLoss`.

    Attributes:
        kind: ``domain_loss``.
        domain: Which one.
        start_h: When it goes, hours from the start of the run.
        end_h: When it is back.
    """

    kind: Literal["domain_loss"]
    domain: Name


IncidentSettings = Annotated[LinkCutSettings | DomainLossSettings, Field(discriminator="kind")]
